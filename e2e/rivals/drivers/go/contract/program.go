package contract

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program describes a program that waits for the lock and runs the command itself. The events are what can be
// seen from outside: that the command has begun and has ended, and what the program writes.
type Program struct {
	// Command makes the program's command line from that of the command to run.
	Command func(command []string) []string
	// Token is the shell expression of the fencing token in the command's environment, or "".
	Token string
	// Lost tells whether a line that the program has written says that the lock is lost.
	Lost func(line string) bool
}

// The command's own shell: it tells the driver that it has begun, and becomes the command.
const begin = `echo "$$ %s"; LOCKKEEPER_FENCING_TOKEN=${%s:-$(date +%%s%%3N)} exec "$@" </dev/null >&2`

// RunProgram is Run for a program.
func RunProgram(o *Options, p *Program) {
	if o.Crowd > 0 || o.Probe != "" {
		fmt.Fprintln(os.Stderr, "--crowd, --probe: a program takes no part without a command")
		os.Exit(2)
	}
	ctx := untilSigterm()
	for times := 0; (o.Times == 0 || times < o.Times) && ctx.Err() == nil; {
		Ready()
		wasHeld, err := p.once(ctx, o)
		if wasHeld {
			times++
		}
		if err != nil && ctx.Err() == nil {
			Error(err)
			wait(ctx, pause)
		}
	}
}

// One life of the program.
func (p *Program) once(ctx context.Context, o *Options) (wasHeld bool, err error) {
	name := p.Token
	if name == "" {
		name = "NO_TOKEN"
	}
	script := fmt.Sprintf(begin, "$"+name, name)
	line := p.Command(append([]string{"sh", "-c", script, "sh"}, o.Command...))
	program := exec.Command(line[0], line[1:]...)
	stdout, err := program.StdoutPipe()
	if err != nil {
		return false, err
	}
	// With the command's output, where it says nothing about the lock.
	program.Stderr = os.Stderr
	if p.Lost != nil {
		program.Stderr = program.Stdout
	}
	if err := program.Start(); err != nil {
		return false, err
	}
	hold := newHold()
	begun := make(chan *os.Process, 1)
	ended := make(chan error, 1)
	go func() {
		p.read(stdout, hold, begun)
		ended <- program.Wait()
	}()
	var child *os.Process
	var over <-chan time.Time
	stopping := ctx.Done()
	for {
		select {
		case child = <-begun:
			over = timer(o.Hold)
			if ctx.Err() != nil {
				stop(child)
			}
		case <-over:
			stop(child)
			over = nil
		case <-stopping:
			stopping = nil
			if child == nil {
				_ = program.Process.Signal(syscall.SIGTERM)
			} else {
				stop(child)
			}
		case err := <-ended:
			select {
			// A command that ended at once.
			case child = <-begun:
			default:
			}
			if child == nil {
				return false, errors.Join(errors.New("the program ended without the lock"), err)
			}
			if !hold.wasLost() {
				released()
			}
			return true, nil
		}
	}
}

// SIGTERM, and SIGKILL after the grace, unless the command has ended by then.
func stop(child *os.Process) {
	_ = child.Signal(syscall.SIGTERM)
	time.AfterFunc(grace, func() { _ = child.Kill() })
}

// Reads what the program writes, and what the command does if it shares the pipe: all goes to stderr but the
// line with which the command begins.
func (p *Program) read(from io.Reader, hold *Hold, begun chan<- *os.Process) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line := lines.Text()
		if begun != nil {
			if process, token, ok := beginning(line); ok {
				held(token)
				begun <- process
				begun = nil
				continue
			}
		}
		fmt.Fprintln(os.Stderr, line)
		if p.Lost != nil && p.Lost(line) {
			hold.Lost(line)
		}
	}
}

func beginning(line string) (process *os.Process, token *int64, ok bool) {
	pid, rest, _ := strings.Cut(line, " ")
	number, err := strconv.Atoi(pid)
	if err != nil {
		return nil, nil, false
	}
	if process, err = os.FindProcess(number); err != nil {
		return nil, nil, false
	}
	if value, err := strconv.ParseInt(rest, 10, 64); err == nil {
		token = &value
	}
	return process, token, true
}
