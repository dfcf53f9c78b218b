// Package redlock has redlock: redsync's Mutex over independent Redis servers.
//
// Follows https://github.com/go-redsync/redsync#usage with one pool a server, and
// https://pkg.go.dev/github.com/go-redsync/redsync/v4: WithExpiry for --lease-ms, and Mutex.Extend, which leaves
// it to its user to call it in time; this driver does that three times an expiry. Extend's "false" or its error
// is a loss, and so is Mutex.Until, "the time of validity of acquired lock", when it has come. Clients have the defaults of go-redis: 5 s to connect, 3 s for an answer, three more tries.
//
// Fencing token: none. Reentrant: no. Tells of a loss: by the answer of Extend and by Until, if one asks. After a crash:
// the keys expire --lease-ms after the last Extend.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"lockkeeper/rivals/contract"
)

// Of one expiry.
const extensions = 3

type system struct {
	options *contract.Options
	clients []*goredislib.Client
	redsync *redsync.Redsync
	mutex   *redsync.Mutex
	end     context.CancelFunc
}

// Connect makes the clients, which connect when they are used.
func Connect(_ context.Context, o *contract.Options) (contract.System, error) {
	s := &system{options: o, end: func() {}}
	var pools []redis.Pool
	for _, address := range o.Addresses() {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		s.clients = append(s.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	s.redsync = redsync.New(pools...)
	return s, nil
}

// Calls are those of the second page. It has no lock for several holders.
func (s *system) Calls() map[string]string {
	return map[string]string{
		"again": "Mutex.LockContext", "try": "Mutex.TryLockContext", "timed": "Mutex.LockContext",
	}
}

// Probe makes one of these calls.
func (s *system) Probe(ctx context.Context, verb string, wait time.Duration) error {
	if verb == "again" {
		// A second Mutex would be another contender.
		return busy(s.mutex.LockContext(ctx))
	}
	s.mutex = s.newMutex()
	if verb == "try" {
		return busy(s.mutex.TryLockContext(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return busy(s.mutex.LockContext(ctx))
}

func busy(err error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return contract.ErrBusy
	}
	return err
}

func (s *system) newMutex() *redsync.Mutex {
	return s.redsync.NewMutex(s.options.Lock, redsync.WithExpiry(s.options.Lease))
}

func (s *system) Acquire(ctx context.Context, lost func(string)) (*int64, error) {
	s.mutex = s.newMutex()
	// One call of it has 32 tries, with pauses of its own between them.
	for err := s.mutex.LockContext(ctx); err != nil; err = s.mutex.LockContext(ctx) {
		var taken *redsync.ErrTaken
		if ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			return nil, err
		}
	}
	var holding context.Context
	holding, s.end = context.WithCancel(context.Background())
	extended := make(chan time.Time, 1)
	go watch(holding, s.mutex.Until(), extended, lost)
	go extend(holding, s.mutex, s.options.Lease/extensions, extended, lost)
	return nil, nil
}

// Also while an Extend waits for servers that are away.
func watch(holding context.Context, until time.Time, extended <-chan time.Time, lost func(string)) {
	for {
		select {
		case <-holding.Done():
			return
		case until = <-extended:
		case <-time.After(time.Until(until)):
			lost("Until has come")
			return
		}
	}
}

func extend(
	holding context.Context, mutex *redsync.Mutex, period time.Duration,
	extended chan<- time.Time, lost func(string),
) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-holding.Done():
			return
		case <-ticker.C:
			if ok, err := mutex.Extend(); !ok || err != nil {
				lost(fmt.Sprintf("Extend: %t, %v", ok, err))
				return
			}
			select {
			case extended <- mutex.Until():
			case <-holding.Done():
				return
			}
		}
	}
}

func (s *system) Release() error {
	s.end()
	_, err := s.mutex.Unlock()
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) {
		// Expired, or another's by now.
		return nil
	}
	return err
}

func (s *system) Close() {
	s.end()
	for _, client := range s.clients {
		_ = client.Close()
	}
}
