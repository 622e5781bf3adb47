// Package backup makes backups of environments and of the whole server while they are in use: on request and by
// schedule, to a folder or to an object store, and keeps them by rule. The contents of a backup, and its restoration,
// belong to the packages below it.
//
// A backup shows an environment as of one moment. What an earlier one has stored already is not stored again. Backups
// go slowly while events are being written, so that writers hardly notice. A backup that is interrupted by a crash or
// by the end of the server has failed; what it has stored is reused by the next one, or removed.
//
// The decisions behind it are in docs/internals/custody.md.
package backup

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/base/keyfile"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// Storage is what the service needs of a store.
type Storage interface {
	store.Sides
	store.Aggregates
	store.Archives
	Tenants(ctx context.Context) ([]j17.Tenant, error)
}

// Options configures a service.
type Options struct {
	Store    Storage
	Registry *control.Registry
	Clock    clock.Clock
	Worker   *worker.Kit
	Logger   *slog.Logger
	// Head returns the size and the root of an environment's log up to a position.
	Head func(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (size uint64, root [32]byte, err error)
	// Spaces are those of all parts of the program.
	Spaces []part.Space
	// Folder is where backups go unless the settings say otherwise.
	Folder string
	// ByDefault, if not nil, returns the settings of an instance without any of its own, or with "" those of the
	// server. If it is nil there are none, and it is not tested whether the folder can be written.
	ByDefault func(instance string) Settings
	// Key is what secrets are sealed with.
	Key *keyfile.File
	// Private allows object stores at addresses of this machine and of the networks around it.
	Private bool
	// Free returns the free and the total space of a folder, in bytes.
	Free func(folder string) (free, total uint64, err error)
	// Committed counts the events that were committed: while it grows, backups go slowly.
	Committed func() uint64
	// Program is the version of this program.
	Program string
}

// Service makes and keeps backups. It is safe for concurrent use.
type Service struct {
	Options
	// spaces are those of the options, by their names.
	spaces map[store.Space]part.Space
	mint   *ident.Minter
	// settings are those of instances and of the server, rows the listed backups, places where they are; collector
	// removes parts there that no backup needs.
	settings  *settingsStore
	rows      rows
	places    *places
	collector *collector
	// schedule says when to check the backups of a tenant; erasures has the erasures to note beside them.
	schedule, erasures *worker.Queue
	counts             counts
	// counted reports that countLast is done. Only upkeep uses it.
	counted bool

	// turn is held while settings change.
	turn sync.Mutex

	mu sync.Mutex
	// waiting are the jobs that have not begun, in their order; active are those that have, by their scope.
	waiting []*job
	active  map[j17.Tenant]*job
	// more is signalled when a job may begin.
	more chan struct{}
	// turns has, by instance, the number of the last job that has begun; begun is how many there were.
	turns map[string]uint64
	begun uint64
}

// counts are what Stats shows.
type counts struct {
	completed, failed, bytes, noted atomic.Uint64
	// lastServer and lastEnvironment are when the last backup of each kind was completed, in Unix seconds.
	lastServer, lastEnvironment atomic.Int64
	// unwritable reports that the folder could not be written at the last test.
	unwritable atomic.Bool
}

// Stats is what the service has done since the start of the process.
type Stats struct {
	// Completed and Failed count backups, Bytes what was newly stored for them.
	Completed, Failed, Bytes uint64
	// LastServer is when the last backup of the whole server was completed, LastEnvironment when the last one of an
	// environment, in Unix seconds; 0 for never. Those from before the start of the process count as soon as they have
	// been found.
	LastServer, LastEnvironment int64
	// FolderWritable reports whether the folder could be written at the last test; true if it is not tested.
	FolderWritable bool
	// Running and Waiting are the backups in progress and those that have not begun.
	Running, Waiting int
	// Noted counts the erasures that were noted beside backups.
	Noted uint64
}

// Stats returns what the service has done so far.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Completed: s.counts.completed.Load(), Failed: s.counts.failed.Load(), Bytes: s.counts.bytes.Load(),
		LastServer: s.counts.lastServer.Load(), LastEnvironment: s.counts.lastEnvironment.Load(),
		FolderWritable: !s.counts.unwritable.Load(), Noted: s.counts.noted.Load(), Running: len(s.active),
		Waiting: len(s.waiting),
	}
}

// New returns a service. When it returns, backups that were not finished when the server last ended have failed.
func New(ctx context.Context, o Options) (*Service, error) {
	s := &Service{
		Options: o, spaces: part.ByName(o.Spaces), mint: ident.NewMinter(o.Clock.Now),
		active: map[j17.Tenant]*job{},
		more:   make(chan struct{}, 1), turns: map[string]uint64{},
	}
	s.settings = &settingsStore{store: o.Store, key: o.Key, byDefault: o.ByDefault}
	s.rows = rows{o.Store}
	s.places = &places{settings: s.settings, clock: o.Clock, folder: o.Folder, private: o.Private}
	s.collector = newCollector(s.places)
	s.schedule = o.Worker.Queue(s.looks())
	s.erasures = o.Worker.Queue(s.notes())
	if err := s.endInterrupted(ctx); err != nil {
		return nil, err
	}
	return s, s.countLast(ctx, []j17.Tenant{j17.System}) // there may be many environments
}

// How many backups are made at a time; of one instance never more than one. A backup to an object store does not count
// for atOnce after slowAfter, so that others do not wait for a store that somebody has chosen. There are never more
// than most, of which at most mostRemote go to object stores: however slow the stores are, atOnce are left for backups
// to a folder. If others wait for an object store, a backup that has used its own for turnTime waits again behind them,
// and later finds what it has stored there. Each turn is twice as long as the last, so that it completes however slow
// its store is.
const (
	atOnce     = 2
	mostRemote = 3
	most       = mostRemote + atOnce
	slowAfter  = time.Minute
	turnTime   = 10 * time.Minute
	mostTurns  = 10
)

// Run makes backups until the context ends. Unfinished ones have failed then.
func (s *Service) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, q := range []*worker.Queue{s.schedule, s.erasures} {
		running.Go(func() { _ = q.Run(ctx) }) // It ends with the context.
	}
	loops := []worker.Loop{
		{Name: "backup_upkeep", Every: upkeepEvery, Do: s.upkeep},
		{
			Name: "backup_collect", Wake: s.collector.wake, Do: s.collector.collectAll,
			Retry: worker.Backoff{First: firstCollect, Longest: longestCollect},
		},
	}
	for range most {
		loops = append(loops, worker.Loop{Name: "backups", Do: s.next})
	}
	s.Worker.Every(ctx, loops...)
	running.Wait()
	return nil
}

// split returns the instance and the environment of a tenant; "" for that of the registry.
func split(t j17.Tenant) (instance string, env j17.Environment) {
	if t == j17.System {
		return "", ""
	}
	instance, name, _ := strings.Cut(string(t), "/")
	return instance, j17.Environment(name)
}

// failure turns an error of the store into one for users.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*j17.Error](err); ok {
		return err
	}
	if errors.Is(err, store.ErrFull) {
		return j17.Errorf(j17.CodeStorageFull, "The server is short of disk space and accepts no changes until there is room again.").Because(err)
	}
	return j17.Errorf(j17.CodeUnavailable, "What the server knows about backups cannot be read or changed at the moment. Try again.").Because(err)
}
