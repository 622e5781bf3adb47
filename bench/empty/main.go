// Command empty is the yardstick of the HTTP benchmarks: a net/http server whose handler reads the body and answers a
// fixed one. With the name of a file it is the least that a durable server can do: before it answers, the body is
// appended to the file and the file synced, for all requests that wait at the same time together.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}

func run(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return errors.New("usage: empty ADDRESS STATUS BODY [FILE]")
	}
	status, body := http.StatusOK, []byte(args[2])
	if args[1] == "201" {
		status = http.StatusCreated
	}
	store := func(r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}
	if len(args) == 4 {
		f, err := os.Create(args[3]) //nolint:gosec // the file that the benchmark gave
		if err != nil {
			return err
		}
		store = newLog(f).store
	}
	server := &http.Server{
		Addr:              args[0],
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := store(r); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(status)
			_, _ = w.Write(body) //nolint:gosec // the text that the benchmark gave
		}),
	}
	return server.ListenAndServe()
}

// log appends what requests bring, and syncs once for all that wait.
type log struct {
	file  *os.File
	queue chan entry
}

type entry struct {
	body   []byte
	stored chan error
}

// waiting is how many requests may wait; the benchmarks have fewer connections.
const waiting = 1024

func newLog(f *os.File) *log {
	l := &log{file: f, queue: make(chan entry, waiting)}
	go l.run()
	return l
}

func (l *log) store(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	e := entry{body, make(chan error, 1)}
	l.queue <- e
	return <-e.stored
}

func (l *log) run() {
	var batch []entry
	var bytes []byte
	for first := range l.queue {
		batch, bytes = append(batch[:0], first), append(bytes[:0], first.body...)
		for more := true; more; {
			select {
			case e := <-l.queue:
				batch, bytes = append(batch, e), append(bytes, e.body...)
			default:
				more = false
			}
		}
		_, err := l.file.Write(bytes)
		if err == nil {
			err = l.file.Sync()
		}
		for _, e := range batch {
			e.stored <- err
		}
	}
}
