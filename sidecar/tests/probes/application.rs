//! An application that answers HTTP as it is told, and remembers what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Answers every request with what was set last. Ends with the test's process.
#[derive(Clone)]
pub struct Application {
    pub port: u16,
    answer: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Application {
    pub fn start(status: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let application = Self {
            port: listener.local_addr().unwrap().port(),
            answer: Arc::default(),
            asked: Arc::default(),
        };
        application.answers(status);
        let serving = application.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while !request.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut request).unwrap() == 0 {
                        break;
                    }
                }
                let answer = serving.answer.lock().unwrap().clone();
                serving.asked.lock().unwrap().push(request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        application
    }

    /// From now on, with this status line and header fields: `200 OK`, `302 Found\r\nlocation: /`.
    pub fn answers(&self, status: &str) {
        *self.answer.lock().unwrap() = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub fn asked_for(&self, path: &str) -> usize {
        let line = format!("GET {path} HTTP/1.1\r\n");
        self.asked()
            .iter()
            .filter(|request| request.starts_with(&line))
            .count()
    }
}
