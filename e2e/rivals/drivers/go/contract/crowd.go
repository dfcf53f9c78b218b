package contract

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The others may all have lost their clients.
const standBack = 5 * time.Second

// Crowd is many users of one lock in one process, without a command: what a lock costs, and who gets it when.
//
// --crowd N makes N contenders, each with a client of its own, that hold for --hold-ms again and again. A
// contender that has released stands back until another one holds, so that every handoff is one to somebody who
// waited; with --rejoin at-once it queues again at once, and the lock decides who is next.
//
// Events name the contender ("who"). "releasing" comes before the release is sent, "held" after the library has
// said so. SIGTERM ends the process as it is.
func Crowd(o *Options, connect func(context.Context, *Options) (System, error)) {
	holds := &holds{changed: make(chan struct{})}
	for who := range o.Crowd {
		own := *o
		own.Name = fmt.Sprintf("%s-%d", o.Name, who)
		go contend(&own, who, connect, holds)
	}
	select {}
}

// How often the lock was held, by all together.
type holds struct {
	mutex   sync.Mutex
	changed chan struct{}
}

// Add counts a hold; the channel is closed at the next one.
func (h *holds) add() <-chan struct{} {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	close(h.changed)
	h.changed = make(chan struct{})
	return h.changed
}

// One client after the other, as in Run.
func contend(o *Options, who int, connect func(context.Context, *Options) (System, error), holds *holds) {
	ctx := context.Background()
	for {
		system, err := connect(ctx, o)
		if err == nil {
			emitBy("ready", who, "")
			for err == nil {
				err = turn(ctx, o, who, system, holds)
			}
			system.Close()
		}
		emitBy("error", who, err.Error())
		time.Sleep(pause)
	}
}

func turn(ctx context.Context, o *Options, who int, system System, holds *holds) error {
	var over bool
	var mutex sync.Mutex
	lost := func(how string) {
		mutex.Lock()
		defer mutex.Unlock()
		if !over {
			emitBy("lost", who, how)
		}
	}
	if _, err := system.Acquire(ctx, lost); err != nil {
		return err
	}
	emitBy("held", who, "")
	next := holds.add()
	time.Sleep(o.Hold)
	mutex.Lock()
	over = true
	mutex.Unlock()
	emitBy("releasing", who, "")
	if err := system.Release(); err != nil {
		return err
	}
	if !o.RejoinAtOnce {
		select {
		case <-next:
		case <-time.After(standBack):
		}
	}
	return nil
}
