//! Feeds every parser by coverage, as many at once as there are processors: builds the engine (libFuzzer) and runs it.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use lockkeeper_fuzz::{TARGETS, Target, targets};

/// How the compiler counts coverage for libFuzzer: the flags of `cargo fuzz` without the sanitizers, which
/// need a compiler of another channel, and find little in Rust without `unsafe`.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Feeds every parser of external input with hostile inputs, and prints the results.
///
/// Exits with 1 when there is a finding.
#[derive(Parser)]
#[command(name = "lockkeeper-fuzz")]
struct Args {
    /// Minutes for each target.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Targets at once; by default as many as there are processors.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Only this target; may be given several times.
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
    /// Feed the target this input once, and print the result. Needs one --target.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Print the names of the targets.
    #[arg(long)]
    list: bool,
}

struct Outcome {
    executions: String,
    coverage: String,
    peak: String,
    finding: Option<Finding>,
}

/// An input at which a target failed.
struct Finding {
    input: Option<PathBuf>,
    why: String,
    log: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.list {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&args.targets)?;
    if let Some(file) = &args.replay {
        let [target] = chosen.as_slice() else {
            bail!("--replay is for one target: name it with --target");
        };
        return replay(target, file);
    }
    ensure!(
        args.minutes > 0.0,
        "--minutes is {} and has to be more than 0",
        args.minutes
    );
    let engine = build()?;
    println!(
        "{:<20}{:>12}{:>10}{:>14}  verdict",
        "target", "executions", "coverage", "peak memory"
    );
    let jobs = args.jobs.map_or_else(thread::available_parallelism, Ok)?;
    let (next, is_good) = (Mutex::new(chosen.iter()), AtomicBool::new(true));
    thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                let target = next.lock().expect("no thread panics while it holds this").next();
                let Some(target) = target else { return Ok(()) };
                let outcome = run(&engine, target, args.minutes)?;
                is_good.fetch_and(outcome.finding.is_none(), Ordering::Relaxed);
                print!("{}", outcome.told(target.name));
            }
        };
        let workers: Vec<_> = (0..jobs.get()).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(if is_good.into_inner() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Outcome {
    /// Lines for the user.
    fn told(&self, target: &str) -> String {
        let Self {
            executions,
            coverage,
            peak,
            finding,
        } = self;
        let verdict = if finding.is_some() { "FAILED" } else { "withstood" };
        let mut told = format!("{target:<20}{executions:>12}{coverage:>10}{peak:>14}  {verdict}\n");
        if let Some(Finding { input, why, log }) = finding {
            told += &format!("    {why}\n    what the engine said: {}\n", log.display());
            if let Some(input) = input {
                let input = input.display();
                told += &format!("    again: make fuzz ARGS=\"--target {target} --replay {input}\"\n");
            }
        }
        told
    }
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Target>> {
    if names.is_empty() {
        return Ok(TARGETS.to_vec());
    }
    let named = |name: &String| {
        targets::named(name).with_context(|| format!("there is no target `{name}`: --list names all of them"))
    };
    names.iter().map(named).collect()
}

fn replay(target: &Target, file: &Path) -> anyhow::Result<ExitCode> {
    let input = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    target.warm_up();
    Ok(match target.try_out(&input) {
        Ok(peak) => {
            println!("{} withstands it, with {peak} bytes of memory", target.name);
            ExitCode::SUCCESS
        }
        Err(excess) => {
            println!("{}: {excess}", target.name);
            ExitCode::FAILURE
        }
    })
}

/// The folder for all output.
fn folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    workspace.canonicalize().unwrap_or(workspace).join("target")
}

fn build() -> anyhow::Result<PathBuf> {
    println!("Building the engine with coverage counted (the first time some minutes) ...");
    // With an explicit target cargo does not apply these flags to programs that run during the build.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--profile",
            "fuzz",
            "--target",
            &target,
        ])
        .args([
            "--package",
            "lockkeeper-fuzz",
            "--bin",
            "lockkeeper-fuzz-engine",
            "--features",
            "engine",
        ])
        .arg("--target-dir")
        .arg(folder())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", COVERAGE)
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the engine was not built");
    Ok(folder().join(target).join("fuzz/lockkeeper-fuzz-engine"))
}

fn run(engine: &Path, target: &Target, minutes: f64) -> anyhow::Result<Outcome> {
    let folder = folder().join("fuzz").join(target.name);
    let (corpus, findings) = (folder.join("corpus"), folder.join("findings"));
    for folder in [&corpus, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for (number, seed) in (target.seeds)().into_iter().enumerate() {
        fs::write(corpus.join(format!("seed-{number}")), seed)?;
    }
    let words = folder.join("words");
    fs::write(&words, dictionary(target.words))?;
    let log = folder.join("log");
    let output = File::create(&log)?;
    let ended = Command::new(engine)
        .arg(&corpus)
        .arg(format!("-max_total_time={}", (minutes * 60.0).ceil()))
        .arg(format!("-max_len={}", target.longest))
        // libFuzzer refuses a dictionary without words.
        .args((!target.words.is_empty()).then(|| format!("-dict={}", words.display())))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        // Generous limits: an allocation stays within a megabyte of the largest bound, and no input takes a
        // second.
        .args([
            "-malloc_limit_mb=256",
            "-rss_limit_mb=1024",
            "-timeout=10",
            "-print_final_stats=1",
        ])
        .env("LOCKKEEPER_FUZZ_TARGET", target.name)
        .stdout(Stdio::null())
        .stderr(output)
        .status()
        .with_context(|| format!("cannot start {}", engine.display()))?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    Ok(outcome(&said, log, ended.success()))
}

/// Words as libFuzzer reads them: in quotation marks, with everything else in hexadecimal digits.
fn dictionary(words: &[&str]) -> String {
    let quoted = |word: &&str| {
        let escaped: String = word.bytes().map(|byte| format!("\\x{byte:02X}")).collect();
        format!("\"{escaped}\"\n")
    };
    words.iter().map(quoted).collect()
}

/// Reads what libFuzzer has printed.
fn outcome(said: &str, log: PathBuf, is_good: bool) -> Outcome {
    let last = |mark: &str| {
        let (_, rest) = said.rsplit_once(mark)?;
        Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let why = said
        .lines()
        .skip_while(|line| !line.contains("panicked at") && !line.contains("ERROR: libFuzzer"))
        .take(2)
        .collect::<Vec<_>>()
        .join(" ");
    let why = match why.is_empty() {
        true => said.lines().last().unwrap_or_default().to_owned(),
        false => why,
    };
    let unknown = || "?".to_owned();
    Outcome {
        executions: last("stat::number_of_executed_units:").unwrap_or_else(unknown),
        coverage: last(" cov: ").unwrap_or_else(unknown),
        peak: last("peak: ").unwrap_or_else(unknown),
        finding: (!is_good).then(|| Finding {
            input: last("Test unit written to ").map(PathBuf::from),
            why,
            log,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_words_are_read_into_a_verdict() {
        let said = "peak: 100 bytes\n#2\tINITED cov: 77 ft: 80 corp: 1/1b exec/s: 0 rss: 30Mb\npeak: 912 bytes\n\
                    #9\tNEW    cov: 78 ft: 81 corp: 2/2b\nthread '<unnamed>' panicked at a.rs:1:1:\nit broke\n\
                    artifact_prefix='x/'; Test unit written to x/crash-1\nstat::number_of_executed_units: 1234\n";
        let outcome = outcome(said, PathBuf::new(), false);
        assert_eq!(
            (
                outcome.executions.as_str(),
                outcome.coverage.as_str(),
                outcome.peak.as_str()
            ),
            ("1234", "78", "912")
        );
        let finding = outcome.finding.expect("a finding");
        assert_eq!(finding.input, Some(PathBuf::from("x/crash-1")));
        assert!(
            finding.why.contains("panicked at a.rs") && finding.why.contains("it broke"),
            "{}",
            finding.why
        );
        assert_eq!(dictionary(&["\"a"]), "\"\\x22\\x61\"\n");
    }
}
