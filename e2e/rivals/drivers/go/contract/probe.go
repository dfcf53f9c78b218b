package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrBusy is what a Prober answers when the library says that another one has the lock.
var ErrBusy = errors.New("another one has it")

// Prober is a System whose library has more calls than Acquire and Release need.
type Prober interface {
	System
	// Calls names the library's call for each of these verbs that it has one for:
	//
	//	again   by the holder; without an entry Acquire is called again, and "" says that there is no such call
	//	try     without waiting
	//	timed   for `wait`
	//	share   as a reader, or with one of two permits
	//	exceed  as a writer, or with one permit more than there are
	Calls() map[string]string
	// Probe makes one of these calls; ErrBusy if the lock is another one's.
	Probe(ctx context.Context, verb string, wait time.Duration) error
}

// Probe tells what a lock can do when nothing breaks: the steps of a script, one after the other, and what came of each.
//
// --probe "a acquire,b try,..." names a client and a verb in each step. A step that has not ended after --bound-ms
// waits, and so do all later ones of that client. The process ends as it is: nobody needs the lock any more.
func Probe(o *Options, connect func(context.Context, *Options) (System, error)) {
	clients := map[string]*client{}
	for _, step := range strings.Split(o.Probe, ",") {
		name, verb, _ := strings.Cut(step, " ")
		one, ok := clients[name]
		if !ok {
			own := *o
			own.Name = fmt.Sprintf("%s-%s", o.Name, name)
			// Connecting is no part of a step.
			system, err := connect(context.Background(), &own)
			if err != nil {
				Error(err)
				os.Exit(1)
			}
			one = &client{options: &own, system: system}
			clients[name] = one
		}
		one.step(verb)
	}
}

type client struct {
	options *Options
	system  System
	waits   bool
}

func (c *client) step(verb string) {
	call, work := c.work(verb)
	began := time.Now()
	outcome, what := "not-offered", ""
	if work != nil {
		outcome = "waits"
		if !c.waits {
			done := make(chan error, 1)
			go func() { done <- work(context.Background()) }()
			select {
			case err := <-done:
				outcome = "got"
				if errors.Is(err, ErrBusy) {
					outcome = "busy"
				} else if err != nil {
					outcome, what = "refused", err.Error()
				}
			case <-time.After(c.options.Bound):
				c.waits = true
			}
		}
	}
	emitStep(outcome, time.Since(began).Milliseconds(), call, what)
}

// What a verb does, or nil if the library has no call for it.
func (c *client) work(verb string) (call string, work func(context.Context) error) {
	if prober, ok := c.system.(Prober); ok {
		call, ok := prober.Calls()[verb]
		if ok && call == "" {
			return "", nil
		}
		if ok {
			return call, func(ctx context.Context) error { return prober.Probe(ctx, verb, c.options.Wait) }
		}
	}
	switch verb {
	case "acquire", "again":
		return "", func(ctx context.Context) error {
			_, err := c.system.Acquire(ctx, func(string) {})
			return err
		}
	case "release":
		return "", func(context.Context) error { return c.system.Release() }
	}
	return "", nil
}
