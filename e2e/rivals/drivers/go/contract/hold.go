package contract

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Hold is one time of holding the lock.
type Hold struct {
	mutex sync.Mutex
	child *exec.Cmd
	how   string
	ended bool
	over  chan struct{}
}

func newHold() *Hold {
	return &Hold{over: make(chan struct{})}
}

// Lost is called when the library says that the lock is lost: perhaps before there is a child, perhaps after
// its end.
func (h *Hold) Lost(how string) {
	h.mutex.Lock()
	if h.how != "" || h.ended {
		h.mutex.Unlock()
		return
	}
	h.how = how
	if h.child != nil {
		_ = h.child.Process.Kill()
	}
	h.mutex.Unlock()
	lost(how)
	close(h.over)
}

func (h *Hold) wasLost() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.how != ""
}

// Runs the command until it has ended: by itself, for a loss, for its time or for SIGTERM.
func (h *Hold) run(ctx context.Context, o *Options, token *int64) error {
	held(token)
	child := exec.Command(o.Command[0], o.Command[1:]...)
	child.Env = append(os.Environ(), "LOCKKEEPER_FENCING_TOKEN="+fencing(token))
	// Of the driver's own process group: whoever kills or stops the group means both.
	child.Stdout = os.Stderr
	child.Stderr = os.Stderr
	started, err := h.start(child)
	if !started {
		return err
	}
	ended := make(chan struct{})
	go func() {
		// How it ended does not matter.
		_ = child.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-h.over:
		<-ended
	case <-timer(o.Hold):
		terminate(child.Process, ended)
	case <-ctx.Done():
		terminate(child.Process, ended)
	}
	h.mutex.Lock()
	h.ended = true
	h.mutex.Unlock()
	return nil
}

func (h *Hold) start(child *exec.Cmd) (bool, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.how != "" {
		return false, nil
	}
	if err := child.Start(); err != nil {
		h.ended = true
		return false, err
	}
	h.child = child
	return true, nil
}

// SIGTERM, and SIGKILL after the grace.
func terminate(process *os.Process, ended <-chan struct{}) {
	_ = process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(grace):
		_ = process.Kill()
		<-ended
	}
}

func timer(hold time.Duration) <-chan time.Time {
	if hold == 0 {
		return nil
	}
	return time.After(hold)
}

// For systems without a fencing token: milliseconds since the epoch.
func fencing(token *int64) string {
	if token == nil {
		return strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	return strconv.FormatInt(*token, 10)
}
