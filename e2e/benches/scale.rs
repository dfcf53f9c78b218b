//! `make bench-operator`: the time of an operator's cold start with many locks, its resources then, and the
//! time until users see a handoff. It prints tables, and needs root for a cluster.
//!
//! `LOCKS=1000,10000` and `HANDOFFS=100` set the numbers.

#[allow(dead_code)]
#[path = "../tests/controllers/contender.rs"]
mod contender;
#[allow(dead_code)]
#[path = "../tests/controllers/environment.rs"]
mod environment;
#[path = "scale/handoffs.rs"]
mod handoffs;
#[path = "scale/load.rs"]
mod load;
#[path = "scale/many.rs"]
mod many;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let Some(environment) = environment::alone().await else {
            return;
        };
        handoffs::measure(&environment, number("HANDOFFS", "100")[0]).await;
        many::measure(&environment, &number("LOCKS", "1000,10000")).await;
    });
}

fn number(variable: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    text.split(',')
        .map(|number| {
            let number = number.trim().parse().ok().filter(|number| *number > 0);
            number.unwrap_or_else(|| {
                panic!("{variable} is {text:?}; it has to be whole numbers, as in {default}")
            })
        })
        .collect()
}
