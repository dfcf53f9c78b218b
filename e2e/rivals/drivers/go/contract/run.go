// Package contract has what all drivers share: options, events, the child, and the ends of both.
package contract

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// After an error of a library that has no pace of its own: between two clients.
	pause = 200 * time.Millisecond
	// From SIGTERM to SIGKILL of the child.
	grace = 2 * time.Second
	// For the release after the child's end when the driver is to end: servers may be away.
	release = 5 * time.Second
)

// System is a client of one lock. After an error of Acquire or Release it is closed, and the next try is with
// a new one.
type System interface {
	// Acquire waits for the lock, and returns its fencing token, or nil if it has none. From then on the
	// library's word that the lock is lost goes to lost. It ends early once ctx is done.
	Acquire(ctx context.Context, lost func(how string)) (token *int64, err error)
	// Release gives the lock back, also after a loss.
	Release() error
	Close()
}

// Run competes for the lock until it was held often enough, or SIGTERM.
func Run(o *Options, connect func(context.Context, *Options) (System, error)) {
	ctx := untilSigterm()
	var system System
	for times := 0; (o.Times == 0 || times < o.Times) && ctx.Err() == nil; {
		err := func() (err error) {
			if system == nil {
				if system, err = connect(ctx, o); err != nil {
					return err
				}
				Ready()
			}
			hold := newHold()
			token, err := system.Acquire(ctx, hold.Lost)
			if err != nil {
				return err
			}
			times++
			if err = hold.run(ctx, o, token); err != nil {
				return err
			}
			if err = system.Release(); err == nil && !hold.wasLost() {
				released()
			}
			return err
		}()
		if err != nil {
			if ctx.Err() == nil {
				Error(err)
			}
			if system != nil {
				system.Close()
				system = nil
			}
			wait(ctx, pause)
		}
	}
	if system != nil {
		system.Close()
	}
}

// A context that SIGTERM ends. The process ends some time after it, even if a library does not return.
func untilSigterm() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		time.Sleep(grace + release)
		os.Exit(0)
	}()
	return ctx
}

func wait(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}
