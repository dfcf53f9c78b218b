//! The promises of docs/examples/fencing.sql, on a real PostgreSQL.

mod postgres;

use postgres::Postgres;

fn is_stale(refused: &Result<(), String>) -> bool {
    refused.as_ref().is_err_and(|reason| reason.contains("is stale"))
}

#[test]
fn a_stale_token_is_refused_and_the_present_one_goes_on() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    assert_eq!(postgres.write(Some(7), "b"), Ok(()));
    assert_eq!(postgres.write(Some(9), "c"), Ok(()));
    let refused = postgres.write(Some(7), "d");
    assert!(is_stale(&refused), "{refused:?}");
    // A fencing token has 64 bits.
    assert_eq!(postgres.write(Some(i64::MAX as u64), "e"), Ok(()));
    assert!(is_stale(&postgres.write(Some(9), "f")));
    assert_eq!(postgres.lines(), "a b c e");
}

#[test]
fn nobody_writes_to_a_protected_table_without_a_token_or_turns_the_fence_back() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    let refused = postgres.write(None, "b").unwrap_err();
    assert!(refused.contains("the session has no token"), "{refused}");
    for (sql, reason) in [
        ("TRUNCATE report", "the session has no token"),
        ("UPDATE report SET line = 'b'", "the session has no token"),
        ("DELETE FROM report", "the session has no token"),
        (
            "DELETE FROM lockkeeper.fence",
            "permission denied for table fence",
        ),
        (
            "SELECT lockkeeper.check_token('/locks/report', NULL)",
            "null value in column",
        ),
        (
            "SELECT lockkeeper.check_token('/locks/report', 6)",
            "token 6 of lock /locks/report is stale",
        ),
    ] {
        let output = postgres
            .client("application", None)
            .args(["-c", sql])
            .output()
            .unwrap();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(problem.contains(reason), "{sql}: {problem}");
    }
    assert_eq!(postgres.lines(), "a");
}

#[test]
fn a_new_holder_waits_for_a_transaction_of_the_old_one_and_then_shuts_it_out() {
    let Some(postgres) = Postgres::start() else { return };
    // The token was seen before, so the old transaction only shares the fence and does not raise it.
    assert_eq!(postgres.write(Some(7), "first"), Ok(()));
    let mut old = postgres.session(7);
    old.tell("BEGIN; INSERT INTO report (token, line) VALUES (7, 'old')");
    let mut new = postgres.session(9);
    new.say("INSERT INTO report (token, line) VALUES (9, 'new')");
    postgres.until_somebody_waits();
    old.tell("INSERT INTO report (token, line) VALUES (7, 'still-old'); COMMIT");
    assert_eq!(new.end(), Ok(()));
    old.say("INSERT INTO report (token, line) VALUES (7, 'late')");
    let refused = old.end();
    assert!(is_stale(&refused), "{refused:?}");
    assert_eq!(postgres.lines(), "first old still-old new");
}

#[test]
fn an_old_holder_that_comes_while_the_new_one_writes_is_refused() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "before"), Ok(()));
    let mut new = postgres.session(9);
    new.tell("BEGIN; INSERT INTO report (token, line) VALUES (9, 'new')");
    let mut old = postgres.session(7);
    old.say("INSERT INTO report (token, line) VALUES (7, 'late')");
    postgres.until_somebody_waits();
    new.tell("COMMIT");
    assert!(is_stale(&old.end()));
    assert_eq!(postgres.lines(), "before new");
}

#[test]
fn transactions_under_one_token_do_not_wait_for_each_other() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    let mut open = postgres.session(7);
    open.tell("BEGIN; INSERT INTO report (token, line) VALUES (7, 'b')");
    // This returns only if it does not wait for the open transaction.
    assert_eq!(postgres.write(Some(7), "c"), Ok(()));
    open.tell("COMMIT");
    assert_eq!(postgres.lines(), "a b c");
}

#[test]
fn of_many_concurrent_writers_no_old_write_lands_after_a_newer_one() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 20;
    let Some(postgres) = Postgres::start() else { return };
    let postgres = &postgres;
    let landed: u64 = std::thread::scope(|scope| {
        let write = |writer: u64| {
            (0..ROUNDS)
                .filter(|round| {
                    // Each writer has tokens between those of the others.
                    let token = 1 + round * WRITERS + (writer + round) % WRITERS;
                    let mut session = postgres.session(token);
                    session.say(&format!(
                        "BEGIN; INSERT INTO report (token, line) VALUES ({token}, 'x'); \
                         SELECT pg_sleep(random() * 0.01); \
                         INSERT INTO report (token, line) VALUES ({token}, 'y'); COMMIT"
                    ));
                    let end = session.end();
                    assert!(end.is_ok() || is_stale(&end), "{end:?}");
                    end.is_ok()
                })
                .count() as u64
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let tokens = postgres.ask("SELECT coalesce(string_agg(token::text, ' ' ORDER BY id), '') FROM report");
    let tokens: Vec<u64> = tokens
        .split_whitespace()
        .map(|token| token.parse().unwrap())
        .collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(
        tokens.len() as u64,
        2 * landed,
        "both writes of a transaction, or none"
    );
    assert_eq!(
        tokens.last(),
        Some(&(WRITERS * ROUNDS)),
        "the newest token is never refused"
    );
}
