//! A lock as `kubectl` shows it, and requests to its holder.

use super::Space;

impl Space {
    /// Waits until a part of a lock, as this JSONPath prints it, satisfies a condition. Returns that part.
    pub fn wait_for_lock(&self, lock: &str, part: &str, pleases: impl Fn(&str) -> bool) -> String {
        self.wait_for(&["get", "distributedlock", lock, &output(part)], pleases)
    }

    /// A part of a lock, as this JSONPath prints it.
    pub fn part_of_lock(&self, lock: &str, part: &str) -> String {
        self.kubectl(&["get", "distributedlock", lock, &output(part)])
            .unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Waits until this pod, and no other one, holds a lock according to its status.
    pub fn wait_until_held_by(&self, holder: &str, lock: &str) {
        self.wait_for_lock(lock, "{.status.holders[*].pod}", |pods| pods == holder);
    }

    /// Waits until this many pods are in the queue of a lock that is held.
    pub fn wait_until_waiting(&self, lock: &str, count: usize) {
        let wanted = format!("{count} ");
        self.wait_for_lock(lock, "{.status.waiting} {.status.holders[*].pod}", |answer| {
            answer.starts_with(&wanted) && answer.len() > wanted.len()
        });
    }

    /// The same behind this holder: the status may still show an earlier one.
    pub fn wait_until_waiting_behind(&self, holder: &str, lock: &str, count: usize) {
        let wanted = format!("{count} {holder}");
        self.wait_for_lock(lock, "{.status.waiting} {.status.holders[*].pod}", |answer| {
            answer == wanted
        });
    }

    /// The pods that hold a lock, according to its status.
    pub fn holders(&self, lock: &str) -> Vec<String> {
        let names = self.part_of_lock(lock, "{.status.holders[*].pod}");
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// Asks the pod that holds the lock to step down.
    pub fn release(&self, pod: &str) {
        self.ask_to_release(pod)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.story()));
    }

    /// As [`Self::release`].
    ///
    /// # Errors
    /// When the command fails, with its output.
    pub fn ask_to_release(&self, pod: &str) -> anyhow::Result<String> {
        let release = [
            "exec",
            pod,
            "--container=lockkeeper",
            "--",
            "/lockkeeper",
            "release",
        ];
        self.kubectl(&release)
    }
}

fn output(part: &str) -> String {
    format!("--output=jsonpath={part}")
}
