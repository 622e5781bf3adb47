// Command peers measures j17 beside other ways to store events durably behind HTTP, all on this machine and in turns:
//
//	peers run -j17 FILE -empty FILE [-rounds 5] [-each 4s] [-rest 1s]
//
// starts them all in a folder that is removed in the end, lets wrk send the body of bench/write.lua over 64 connections
// to one after the other, and prints tables. The other commands are the parties that are written here: `peers
// pocketbase ADDRESS FOLDER`, `peers redis ADDRESS DATABASE`, `peers postgres-tx ADDRESS DATABASE` and `peers
// postgres-one ADDRESS DATABASE`. It is a module of its own, so that j17's does not depend on what it measures against.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "run" {
		return measure(ctx, args[1:], os.Stdout, os.Stderr)
	}
	if len(args) != 3 {
		return errors.New("usage: peers run -j17 FILE -empty FILE [-rounds 5] [-each 4s] [-rest 1s]")
	}
	switch args[0] {
	case "pocketbase":
		return servePocketBase(args[1], args[2])
	case "redis":
		return serveRedis(args[1], args[2])
	case "postgres-tx":
		return servePostgres(ctx, args[1], args[2], "events_tx", false)
	case "postgres-one":
		return servePostgres(ctx, args[1], args[2], "events_one", true)
	}
	return fmt.Errorf("there is no party %q", args[0])
}

func measure(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.j17, "j17", "", "the program to measure")
	flags.StringVar(&o.empty, "empty", "", "the program of bench/empty")
	flags.IntVar(&o.rounds, "rounds", 5, "how many times each party is measured")
	flags.DurationVar(&o.each, "each", 4*time.Second, "how long one measurement takes, in whole seconds")
	flags.DurationVar(&o.rest, "rest", time.Second, "how long a party may work after its measurement, before the next begins")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.j17 == "" || o.empty == "" || o.rounds < 1 || o.each < time.Second {
		return errors.New("run needs -j17, -empty, a round and a second at least")
	}
	if o.self, err = os.Executable(); err != nil {
		return err
	}

	// Everything is in one folder. PostgreSQL's user has to get through it.
	if o.dir, err = os.MkdirTemp("", "j17-peers-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if err := os.Chmod(o.dir, 0o711); err != nil {
		return err
	}

	// A child is ended when the thread that started it ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.rounds*8)*(o.each+o.rest)+5*time.Minute)
	defer cancel()
	all, err := start(ctx, o, stderr)
	defer func() { err = errors.Join(err, all.stop()) }()
	if err != nil {
		return err
	}
	if err := all.measure(ctx, o, stderr); err != nil {
		return err
	}
	return all.print(stdout)
}

type options struct {
	j17, empty, self, dir string
	rounds                int
	each, rest            time.Duration
}

func (o options) path(name string) string { return filepath.Join(o.dir, name) }
