// Judges the records of guarded programs a second time, by Porcupine: a checker of linearizability that knows nothing
// of ours. It reads the files by itself.
//
//	porcupine [--silence-ms 50] [--paused INDEX,FROM,TO]... FILE...
//
// Each file has the lines of one contender:
//
//	begin TOKEN NANOSECONDS PID NAME
//	beat TOKEN NANOSECONDS PID
//	end TOKEN NANOSECONDS PID
//
// A program (a PID that begins) ran from its first line to its last one, but for a silence around the time in which the
// machine of the file with this index, from 0, was stopped: from FROM, when it was, until TO, before it went on, in
// nanoseconds. It got the
// lock at some moment before the first line of such a stretch, and gave it back at some moment after the last one. A mutex allows that if there is an order
// of all these moments in which nobody gets a lock that another one has. A fenced mutex demands as well that whoever
// gets it has a higher token than everybody before: that is also the order of first come, first served, where tokens
// are places in a queue.
//
// It prints {"mutex":true,"fenced":true} or what of it is false.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Longer than any check of a round needs.
const patience = 20 * time.Second

// One time in which a program ran.
type stretch struct {
	from, to int64
	token    int64
}

// All times in which a program ran.
type program []stretch

// A time in which the machine of a contender was stopped.
type pause struct {
	contender int
	from, to  int64
}

type pauses []pause

func (p *pauses) String() string { return fmt.Sprint(*p) }

func (p *pauses) Set(text string) error {
	var one pause
	if _, err := fmt.Sscanf(text, "%d,%d,%d", &one.contender, &one.from, &one.to); err != nil {
		return fmt.Errorf("%q is not INDEX,FROM,TO: %w", text, err)
	}
	*p = append(*p, one)
	return nil
}

// Who takes part: a program of a contender. The contender may run another one when it gets the lock again, with the same
// token if nobody had it in between.
type who struct {
	contender, program int
}

// What a program does at an unknown moment: it gets the lock, or gives it back.
type operation struct {
	gets  bool
	token int64
	who   who
}

// The lock: who has it, and the last one who got it.
type state struct {
	held  bool
	token int64
	who   who
}

func main() {
	silence := flag.Int64("silence-ms", 50, "around a pause, a longer one is that pause")
	var stopped pauses
	flag.Var(&stopped, "paused", "when the machine of a file was stopped: INDEX,FROM,TO")
	flag.Parse()
	var history []porcupine.Operation
	client := 0
	for contender, file := range flag.Args() {
		isPause := func(since, until int64) bool {
			if until-since <= *silence*int64(time.Millisecond) {
				return false
			}
			for _, one := range stopped {
				if one.contender == contender && since < one.to && until > one.from {
					return true
				}
			}
			return false
		}
		programs, err := read(file, isPause)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for number, one := range programs {
			history = append(history, operations(client, who{contender, number}, one)...)
			client++
		}
	}
	verdict := map[string]bool{}
	for name, fenced := range map[string]bool{"mutex": false, "fenced": true} {
		result := porcupine.CheckOperationsTimeout(model(fenced), history, patience)
		if result == porcupine.Unknown {
			fmt.Fprintln(os.Stderr, "no verdict after", patience)
			os.Exit(2)
		}
		verdict[name] = result == porcupine.Ok
	}
	line, err := json.Marshal(verdict)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func model(fenced bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{token: math.MinInt64} },
		Step: func(before, input, _ any) (bool, any) {
			lock, does := before.(state), input.(operation)
			if !does.gets {
				if !lock.held || lock.who != does.who {
					return false, lock
				}
				lock.held = false
				return true, lock
			}
			goesOn := lock.who.contender == does.who.contender && lock.token == does.token
			if lock.held || fenced && does.token <= lock.token && !goesOn {
				return false, lock
			}
			return true, state{held: true, token: does.token, who: does.who}
		},
	}
}

func operations(client int, who who, ran program) []porcupine.Operation {
	var all []porcupine.Operation
	for index, one := range ran {
		// Since the last one ended, and until the next one begins, as far as a reader can know.
		since, until := int64(0), int64(math.MaxInt64)
		if index > 0 {
			since = ran[index-1].to
		}
		if index+1 < len(ran) {
			until = ran[index+1].from
		}
		all = append(all,
			porcupine.Operation{
				ClientId: client, Input: operation{true, one.token, who}, Call: since, Return: one.from,
			},
			porcupine.Operation{
				ClientId: client, Input: operation{false, one.token, who}, Call: one.to, Return: until,
			})
	}
	return all
}

func read(name string, isPause func(since, until int64) bool) ([]program, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	// What comes after the last newline is nothing, or half a line.
	lines = lines[:len(lines)-1]
	var all []program
	byPid := map[string]int{}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return nil, fmt.Errorf("%s: %q is no line of a record", name, line)
		}
		token, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		number, known := byPid[fields[3]]
		if fields[0] == "begin" || !known {
			number = len(all)
			byPid[fields[3]] = number
			all = append(all, program{{at, at, token}})
			continue
		}
		ran := all[number]
		if last := &ran[len(ran)-1]; isPause(last.to, at) {
			all[number] = append(ran, stretch{at, at, token})
		} else {
			last.to = at
		}
	}
	return all, nil
}
