//! `make bench-operator`: how long an operator that is started cold takes with many locks, what it needs
//! then, and how soon users see that a lock has changed hands. Prints tables; needs root, for a cluster.
//!
//! `LOCKS=1000,10000` and `HANDOFFS=100` say how many.

#[allow(dead_code)]
#[path = "../tests/cluster/contender.rs"]
mod contender;
#[path = "scale/handoffs.rs"]
mod handoffs;
#[path = "scale/load.rs"]
mod load;
#[path = "scale/many.rs"]
mod many;
#[allow(dead_code)]
#[path = "../tests/cluster/world.rs"]
mod world;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let Some(world) = world::world_alone().await else {
            return;
        };
        handoffs::measure(&world, number("HANDOFFS", "100")[0]).await;
        many::measure(&world, &number("LOCKS", "1000,10000")).await;
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
