// Judges the records of guarded programs a second time, by Porcupine: a checker of linearizability that knows nothing
// of ours. It reads the files by itself.
//
//	porcupine [--silence-ms 50] FILE...
//
// Each file has the lines of one contender:
//
//	begin TOKEN NANOSECONDS PID NAME
//	beat TOKEN NANOSECONDS PID
//	end TOKEN NANOSECONDS PID
//
// A stretch of lines without a longer silence is a time in which the contender ran. It got the lock at some moment
// before the first line, and gave it back at some moment after the last one. A mutex allows that if there is an order
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

// One time in which a contender ran.
type stretch struct {
	from, to int64
	token    int64
	pid      string
}

// What a contender does at an unknown moment: it gets the lock, or gives it back.
type operation struct {
	gets  bool
	token int64
	// The contender: it may run another process when it gets the lock again, with the same token if nobody had it in
	// between.
	who int
}

// The lock: who has it, and the last one who got it.
type state struct {
	held  bool
	token int64
	who   int
}

func main() {
	silence := flag.Int64("silence-ms", 50, "a longer one means that the contender did not run")
	flag.Parse()
	var history []porcupine.Operation
	for client, file := range flag.Args() {
		stretches, err := read(file, *silence*int64(time.Millisecond))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		history = append(history, operations(client, stretches)...)
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
			goesOn := lock.who == does.who && lock.token == does.token
			if lock.held || fenced && does.token <= lock.token && !goesOn {
				return false, lock
			}
			return true, state{held: true, token: does.token, who: does.who}
		},
	}
}

func operations(client int, stretches []stretch) []porcupine.Operation {
	var all []porcupine.Operation
	for index, one := range stretches {
		// Since the last one ended, and until the next one begins, as far as a reader can know.
		since, until := int64(0), int64(math.MaxInt64)
		if index > 0 {
			since = stretches[index-1].to
		}
		if index+1 < len(stretches) {
			until = stretches[index+1].from
		}
		all = append(all,
			porcupine.Operation{
				ClientId: client, Input: operation{true, one.token, client}, Call: since, Return: one.from,
			},
			porcupine.Operation{
				ClientId: client, Input: operation{false, one.token, client}, Call: one.to, Return: until,
			})
	}
	return all
}

func read(name string, silence int64) ([]stretch, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	// What comes after the last newline is nothing, or half a line.
	lines = lines[:len(lines)-1]
	var all []stretch
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
		last := len(all) - 1
		if fields[0] != "begin" && last >= 0 && all[last].pid == fields[3] && at-all[last].to <= silence {
			all[last].to = at
		} else {
			all = append(all, stretch{at, at, token, fields[3]})
		}
	}
	return all, nil
}
