-- Fencing tokens in PostgreSQL: refuses the writes of whoever held the lock before.
-- docs/fencing.md explains it; e2e/tests/fencing proves it.

CREATE SCHEMA lockkeeper;

-- The newest token that was seen of each lock.
CREATE TABLE lockkeeper.fence (
    lock  text   PRIMARY KEY,
    token bigint NOT NULL CHECK (token > 0)
);

-- Refuses a token older than the newest one seen, and keeps newer ones waiting until the calling
-- transaction has ended. Call it first in every transaction that writes what the lock protects.
--
-- The applications' roles have no right to the table: with it they could turn the fence back.
CREATE FUNCTION lockkeeper.check_token(held_lock text, held_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
BEGIN
    -- The usual case, a token that was seen before. The shared lock on the row lets others with the
    -- same token go on beside us, and lets nobody raise the token before we commit.
    PERFORM FROM lockkeeper.fence AS fence
    WHERE fence.lock = held_lock AND fence.token = held_token
    FOR SHARE;
    IF FOUND THEN
        RETURN;
    END IF;

    -- A new token: waits for all transactions under the old one, and then shuts them out.
    INSERT INTO lockkeeper.fence AS fence (lock, token)
    VALUES (held_lock, held_token)
    ON CONFLICT (lock) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'token % of lock % is stale: a newer holder has written already', held_token, held_lock
            USING ERRCODE = 'LK001', HINT = 'End: the lock is held by somebody else.';
    END IF;
END
$$;

-- The same as a trigger, for tables that nobody may write to without a token. The token comes from
-- the setting lockkeeper.token of the session, so an application needs no change:
--   PGOPTIONS="-c lockkeeper.token=$LOCKKEEPER_FENCING_TOKEN"
--
--   CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON report
--   FOR EACH STATEMENT EXECUTE FUNCTION lockkeeper.fenced('/locks/report');
CREATE FUNCTION lockkeeper.fenced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    held_token text := nullif(current_setting('lockkeeper.token', true), '');
BEGIN
    IF held_token IS NULL THEN
        RAISE EXCEPTION 'table % is protected by lock % and the session has no token', TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'LK002', HINT = 'Set lockkeeper.token to the value of LOCKKEEPER_FENCING_TOKEN.';
    END IF;
    PERFORM lockkeeper.check_token(TG_ARGV[0], held_token::bigint);
    RETURN NULL;
END
$$;

-- Whoever may use the fence:
--   GRANT USAGE ON SCHEMA lockkeeper TO application;
