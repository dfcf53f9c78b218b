package contract

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var stdout sync.Mutex

type event struct {
	Event string `json:"event"`
	At    int64  `json:"at"`
}

// Ready says that the driver begins to compete.
func Ready() { emit(event{"ready", now()}) }

func held(token *int64) {
	emit(struct {
		event
		Token *int64 `json:"token"`
	}{event{"held", now()}, token})
}

func lost(how string) {
	emit(struct {
		event
		How string `json:"how"`
	}{event{"lost", now()}, how})
}

func released() { emit(event{"released", now()}) }

// Error tells of an error that the driver goes on after.
func Error(err error) {
	emit(struct {
		event
		What string `json:"what"`
	}{event{"error", now()}, err.Error()})
}

// An event of a crowd.
func emitBy(name string, who int, what string) {
	emit(struct {
		event
		Who  int    `json:"who"`
		What string `json:"what,omitempty"`
	}{event{name, now()}, who, what})
}

// An event of a probe.
func emitStep(outcome string, ms int64, call, what string) {
	emit(struct {
		event
		Outcome string `json:"outcome"`
		Ms      int64  `json:"ms"`
		Call    string `json:"call,omitempty"`
		What    string `json:"what,omitempty"`
	}{event{"step", now()}, outcome, ms, call, what})
}

func emit(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	stdout.Lock()
	defer stdout.Unlock()
	// One write a line, without a buffer.
	fmt.Fprintf(os.Stdout, "%s\n", text)
}

func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}
