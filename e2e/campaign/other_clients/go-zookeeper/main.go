// Stands in the queue of a go-zookeeper Lock some times, and writes the lines of lockkeeper-recorder while
// it holds the lock, so that the overlap checker reads both alike.
//
// Follows https://pkg.go.dev/github.com/go-zookeeper/zk#Lock.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

const beat = 5 * time.Millisecond

func main() {
	connect := flag.String("connect", "", "")
	path := flag.String("path", "", "")
	times := flag.Int("times", 0, "")
	holdMs := flag.Int64("hold-ms", 0, "")
	sessionTimeoutMs := flag.Int64("session-timeout-ms", 0, "")
	name := flag.String("name", "", "")
	record := flag.String("record", "", "")
	flag.Parse()

	timeout := time.Duration(*sessionTimeoutMs) * time.Millisecond
	connection, _, err := zk.Connect(strings.Split(*connect, ","), timeout)
	check(err)
	defer connection.Close()
	// One write of the whole line on a file opened for appending.
	file, err := os.OpenFile(*record, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	check(err)
	for i := 0; i < *times; i++ {
		lock := zk.NewLock(connection, *path, zk.WorldACL(zk.PermAll))
		check(lock.LockWithData([]byte(*name)))
		hold(file, token(connection, *path), *holdMs*int64(time.Millisecond), *name)
		check(lock.Unlock())
	}
}

// The transaction that created our contender: who holds has the least number.
func token(connection *zk.Conn, path string) int64 {
	children, _, err := connection.Children(path)
	check(err)
	first := ""
	for _, child := range children {
		if first == "" || sequence(child) < sequence(first) {
			first = child
		}
	}
	_, stat, err := connection.Get(path + "/" + first)
	check(err)
	return stat.Czxid
}

func sequence(name string) int {
	number, err := strconv.Atoi(name[len(name)-10:])
	check(err)
	return number
}

func hold(file *os.File, token int64, nanoseconds int64, name string) {
	end := now() + nanoseconds
	write(file, "begin", token, " "+name)
	for now() < end {
		time.Sleep(beat)
		write(file, "beat", token, "")
	}
	write(file, "end", token, "")
}

func write(file *os.File, moment string, token int64, rest string) {
	_, err := fmt.Fprintf(file, "%s %d %d %d%s\n", moment, token, now(), os.Getpid(), rest)
	check(err)
}

// CLOCK_BOOTTIME, which the standard library does not read.
func now() int64 {
	const clockBoottime = 7
	var at syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		log.Fatal(errno)
	}
	return at.Nano()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
