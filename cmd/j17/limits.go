package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// In the options of a server, 0 is a limit left to the server. Flags do not accept 0: a user would mean none or no
// limit, and would get the default.

// limitFlag declares a flag that takes a whole number from 1 on.
func limitFlag(f *pflag.FlagSet, p *int, name string, value int, usage string) {
	*p = value
	f.Var((*limit)(p), name, usage)
}

// waitFlag declares a flag that takes a time of more than 0.
func waitFlag(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*wait)(p), name, usage)
}

// What the types of such flags are called in the help of a command.
const (
	limitFlagType = "number"
	waitFlagType  = "time"
)

type limit int

func (l *limit) Type() string   { return limitFlagType }
func (l *limit) String() string { return strconv.Itoa(int(*l)) }

func (l *limit) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("it is less than 1")
	}
	if err == nil {
		*l = limit(n)
	}
	return err
}

type wait time.Duration

func (w *wait) Type() string   { return waitFlagType }
func (w *wait) String() string { return time.Duration(*w).String() }

func (w *wait) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("it is not more than 0")
	}
	if err == nil {
		*w = wait(d)
	}
	return err
}
