// Package server puts a whole server together: it opens the store, wires the packages to each other, listens, and stops
// everything in the right order. Only this package knows which store is used.
//
// The decisions behind it are in docs/internals/server.md.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/sync/errgroup"

	"j17"
	"j17/dashboard"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/code/container"
	"j17/internal/core/engine"
	"j17/internal/core/worker"
	"j17/internal/custody/attention"
	"j17/internal/custody/backup"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/erasure"
	"j17/internal/custody/loading"
	"j17/internal/custody/scrub"
	"j17/internal/derived/build"
	"j17/internal/derived/generation"
	"j17/internal/derived/index"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/derived/unique"
	"j17/internal/edge/direct"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/follow/tail"
	"j17/internal/plane/auth"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/pebble"
	"j17/internal/storage/postgres"
	"j17/internal/storage/store"
)

// Defaults of how long writes and reads wait, how many streams there may be, and how many sagas of an instance run at
// once.
const (
	DefaultWriteWait = engine.DefaultWriteWait
	DefaultReadWait  = engine.DefaultReadWait
	DefaultSagasMax  = saga.DefaultMost
	// DefaultSagasPerWrite is how many sagas one write may start.
	DefaultSagasPerWrite = saga.DefaultPerWrite
	// DefaultScheduledMax is how many scheduled events of an instance may wait for their time.
	DefaultScheduledMax = schedule.DefaultMaxPerInstance
	// DefaultProjectionCacheMiB is the size of the cache of projection values.
	DefaultProjectionCacheMiB = projection.DefaultCacheBytes >> 20
	// LeastStoreCacheMiB and MostStoreCacheMiB bound the default size of the store's cache, which holds blocks of
	// stored data and recent writes: the memory divided by StoreCacheOf.
	LeastStoreCacheMiB = pebble.DefaultCacheBytes >> 20
	MostStoreCacheMiB  = 2048
	StoreCacheOf       = 16

	DefaultStreamsPerKey = httpapi.DefaultStreamsPerKey
	DefaultStreams       = httpapi.DefaultStreams
)

// Options configures a server.
type Options struct {
	// NoDashboard leaves the dashboard out. PublicPath is the path that a proxy puts in front of all others, "" for
	// none.
	NoDashboard bool
	PublicPath  string
	// Dir is the data folder. It is created if it does not exist. With a store on PostgreSQL it has nothing that must
	// not be lost, but for the key file where there is no node secret.
	Dir string
	// Store says where the store is, if not in the data folder.
	Store StoreOptions
	// EraseEvery is the least time between two rewrites of the same tables of a store on PostgreSQL. Erasures that come
	// meanwhile share the next one.
	EraseEvery time.Duration
	// Listen and InternalListen are the addresses of the two listeners.
	Listen         string
	InternalListen string
	// BaseDomain is the domain under which instances have their hosts.
	BaseDomain string
	// Version is that of the program.
	Version string
	// KeyRate and AddressRate limit the requests a minute of each API key and each address; 0 means no limit.
	KeyRate     int
	AddressRate int
	// TrustedProxies are the networks of the proxies in front of the server, ForwardedHeader the header in which they
	// pass on the addresses of clients; "" means X-Forwarded-For.
	TrustedProxies  []netip.Prefix
	ForwardedHeader httpapi.ForwardedHeader
	// Containers is the program that runs containers; "" disables them. ContainerBuildNetwork lets the installation of
	// dependencies, and nothing else, use the network.
	Containers            container.Driver
	ContainerBuildNetwork bool
	// ContainerCgroup is a folder of the cgroup v2 file system in which bubblewrap makes groups, "" for none;
	// ContainerImages are the images in which docker and podman run source code, by runtime ("node", "python", "ruby",
	// "elixir").
	ContainerCgroup string
	ContainerImages map[string]string
	// ContainerProcesses bounds the processes of all containers together, ContainerDiskMiB the disk space of their
	// contents; 0 means 16 and 8192.
	ContainerProcesses, ContainerDiskMiB int
	// ImplicationsMaxDepth and ImplicationsMaxTotal bound the length of the chains of events that one event implies,
	// and their number; 0 means 5 and 100.
	ImplicationsMaxDepth, ImplicationsMaxTotal int
	// SagasMax is how many sagas of an instance run at once; 0 means DefaultSagasMax.
	SagasMax int
	// SagasPerWrite is how many sagas one write may start, including all that it implies; 0 means DefaultSagasPerWrite.
	SagasPerWrite int
	// ProjectionCacheMiB is the size of the cache of projection values; 0 means DefaultProjectionCacheMiB.
	ProjectionCacheMiB int
	// StoreCacheMiB is the size of the store's cache, which holds blocks of stored data and recent writes; 0 means a
	// part of the memory, as StoreCacheOf says.
	StoreCacheMiB int
	// WriteWait is how long a write waits for other writes that read the same states; 0 means DefaultWriteWait.
	WriteWait time.Duration
	// ScheduledMaxPerInstance is how many scheduled events of an instance may be pending; 0 means 100,000.
	ScheduledMaxPerInstance int
	// ReadWait is how long a read waits for a state that takes long to compute; 0 means DefaultReadWait.
	ReadWait time.Duration
	// DrainTime is how long requests in progress may take when the server stops; 0 means 20 seconds.
	DrainTime time.Duration
	// StreamsPerKey and Streams bound the event streams that are open at a time, of one API key and in total; 0 means
	// DefaultStreamsPerKey and DefaultStreams.
	StreamsPerKey, Streams int
	// PrivateListeners allows the listeners of specs to have addresses of this machine and of the networks around it.
	PrivateListeners bool
	// Backups is the folder that backups go to; "" means DefaultBackups(Dir).
	Backups string
	// AuditAnchor is where signed heads of the logs of environments are kept: the name of a file that they are appended
	// to, or a URL that they are posted to; "" for nowhere.
	AuditAnchor string
	// PrivateBackups allows anchors, and the object stores that instances name for their backups, to have addresses of
	// this machine and of the networks around it.
	PrivateBackups bool
	// Plans are added to the built-in ones, or replace them. Alerts are called when much of a plan is used up.
	Plans  []control.Plan
	Alerts []usage.Channel
	// FitCollector lets the server adjust how far the heap grows before the garbage collector runs.
	FitCollector bool
	Clock        clock.Clock
	Logger       *slog.Logger

	// cluster is nil if this is the only server. nodeSecrets are the secret that the server sends and the one that it
	// also accepts; they are empty if the server makes its own.
	cluster     *cluster
	nodeSecrets []string
	// mail is where alerts are mailed, if it has a host.
	mail usage.MailOptions
	// backupsByDefault returns the backups that are made while none are configured; nil means none.
	backupsByDefault func(instance string) backup.Settings
	// maxClockJump is the longest step of the clock that the store accepts; 0 accepts any, for a clock that can be
	// moved.
	maxClockJump time.Duration
}

// Server is one running process.
type Server struct {
	options Options
	store   store.Store
	worker  *worker.Kit
	// key seals what belongs to the store.
	key      *keyfile.File
	registry *control.Registry
	engine   *engine.Engine
	auth     *auth.Authenticator
	blobs    *blob.Store
	deploy   *deploy.Service
	runner   *container.Runner // nil if containers are off
	usage    *usage.Meter
	sagas    *saga.Service
	// screen has the files of the dashboard, nil if it is left out.
	screen *dashboard.Files
	// tail is what streams and live views follow.
	tail *tail.Tail
	// feed reads the feeds of environments for listeners and indexes, builds carries out work on older events.
	feed   *feed.Subscriptions
	builds *build.Service
	// building is set once the server runs: from then on builds are carried out. early are the environments that got a
	// spec before.
	building  atomic.Bool
	early     []j17.Tenant
	indexes   *index.Service
	listeners *listener.Service
	schedule  *schedule.Service
	// logs has the logs of environments.
	logs *envlog.Service
	// backups makes backups.
	backups *backup.Service
	// places finds aggregates by their location.
	places *place.Service
	// generations tries stored events under specs.
	generations *generation.Service
	// unique records which aggregate holds a value that must be unique.
	unique *unique.Service
	// tagging adds the tags of the deployed spec to older events.
	tagging *build.Tagger
	// projections answers reads of projections.
	projections *projection.Service
	checkpoints *checkpoint.Service
	scrub       *scrub.Service
	// erasures removes personal data.
	erasures *erasure.Service
	// attention reports what goes on, and what waits for a person.
	attention *attention.Service
	// public and internal are the open listeners, sockets what they listen on, connections the accepted connections.
	public   net.Listener
	internal net.Listener
	sockets  []*net.TCPListener
	// node is this process among those on a database; nil for a store in the data folder. nodeName and internalURL are
	// what it says of itself, "" for what follows from where it is; alone says that it does not wait for others.
	node                  *postgres.Node
	nodeName, internalURL string
	alone                 bool
	connections           *connections
	forgetting            forgetting

	// The rest is set by OpenServe, if needed: the wrapper of the public handler, the plain listener beside an
	// encrypted one with its handler, certificates from files, the signal to read them again, those of an authority,
	// and the follower that keeps a worker in step.
	face         func(http.Handler) http.Handler
	plain        net.Listener
	plainHandler http.Handler
	certificates []*certificates
	reload       <-chan struct{}
	acme         *autocert.Manager
	follower     *follower
	// restoration is nil if everything was restored before the server answers.
	restoration *restoration
}

const defaultDrainTime = 20 * time.Second

// start opens the store and both listeners. listened, if not nil, is called when there are listeners, and before
// anything is served on them. On a database, the store is opened once it is this process that works.
func (s *Server) start(ctx context.Context, listened func(context.Context) error) error {
	steps := []func(context.Context) error{s.listen, listened, s.join, s.open}
	if !s.options.Store.Given() {
		// A new folder is made after the addresses are taken, so that a port in use leaves no folder behind. An
		// existing folder may take long to open, so it is opened first: clients are refused meanwhile, and not kept
		// waiting.
		steps = []func(context.Context) error{s.open, s.listen, listened}
		if _, err := os.Stat(s.storeFolder()); errors.Is(err, fs.ErrNotExist) {
			steps = []func(context.Context) error{s.listen, listened, s.open}
		}
	}
	for _, step := range steps {
		if step == nil {
			continue
		}
		if err := step(ctx); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return nil
}

func newServer(o Options) *Server { return &Server{options: o, worker: worker.New(o.Clock, o.Logger)} }

// open opens the data folder and creates everything that works on it. Whether it fails or not, Close releases what is
// open.
func (s *Server) open(ctx context.Context) (err error) {
	o := s.options
	if !o.NoDashboard {
		if s.screen, err = dashboard.Open(); err != nil {
			return err
		}
	}

	// The store, and the data about the server itself.
	undo, err := makeFolder(o.Dir)
	if err != nil {
		return fmt.Errorf("the data folder cannot be made: %w", err)
	}
	closeToOthers(o.Dir, o.Logger)
	if s.store, s.key, err = o.openStore(ctx, s.node); err != nil {
		undo()
		return err
	}
	s.takeUp(ctx)
	if s.registry, err = control.Open(ctx, control.Options{
		Store: s.store, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, Plans: o.Plans,
	}); err != nil {
		return err
	}
	if len(o.nodeSecrets) > 0 {
		s.registry.Secrets.UseNodeSecret(o.nodeSecrets[0], o.nodeSecrets[1:]...)
	}
	if o.cluster != nil && o.cluster.upstream != nil {
		s.registry.Replication.Follow(o.cluster.upstream)
	}

	// Authentication, and the counting of requests.
	s.auth = auth.New(s.registry, o.Clock)
	if o.mail.Host != "" {
		mail, err := usage.Mail(o.mail, s.registry)
		if err != nil {
			return err
		}
		o.Alerts = append(slices.Clone(o.Alerts), mail)
	}

	s.usage = usage.New(usage.Options{
		Store: s.store, Registry: s.registry, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, Channels: o.Alerts,
	})

	// The engine gets the store's roles one by one; its writes are counted on the way.
	s.engine = engine.New(engine.Options{
		Store: struct {
			store.Events
			store.Aggregates
			store.Feed
			store.Sides
		}{s.usage.Wrap(s.store), s.store, s.store, s.store},
		Clock: o.Clock, Logger: o.Logger, MaxDepth: o.ImplicationsMaxDepth, MaxImplied: o.ImplicationsMaxTotal,
		WriteWait: o.WriteWait, ReadWait: o.ReadWait,
	})

	// Specs and the code that they name.
	s.blobs = blob.New(blob.Options{Store: s.store, Clock: o.Clock, Worker: s.worker})
	modules, containers, err := s.openCode(ctx)
	if err != nil {
		return err
	}
	s.deploy = deploy.New(deploy.Options{
		Registry: s.registry, Engine: s.engine, Blobs: s.blobs, Modules: modules, Containers: containers,
		Clock: o.Clock, Logger: o.Logger,
		Settled: s.built, Store: s.store, Worker: s.worker,
	})
	if err := s.openServices(ctx); err != nil {
		return err
	}

	// The services that call hooks get all parts before anything runs.
	s.useParts()
	return nil
}

// openServices creates the services beside the engine.
func (s *Server) openServices(ctx context.Context) error {
	o := &s.options

	// What reads events, and is built from them. The folder is locked: no other process uses the store.
	s.tail = tail.New(s.store, s.engine.Shown())
	s.feed = feed.New(feed.Options{Store: s.store, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, Sole: true})
	s.builds = build.New(build.Options{Store: s.store, Clock: o.Clock, Worker: s.worker, Logger: o.Logger})
	s.indexes = index.New(index.Options{
		Store: s.store, Feed: s.feed, Build: s.builds, Clock: o.Clock, Logger: o.Logger,
	})
	s.tagging = build.NewTagger(build.TaggerOptions{Store: s.store, Builds: s.builds, Engine: s.engine})
	s.places = place.New(place.Options{
		Store: s.store, Builds: s.builds, Engine: s.engine, Clock: o.Clock, Logger: o.Logger,
	})
	s.unique = unique.New(unique.Options{
		Store: s.store, Builds: s.builds, Engine: s.engine, Logger: o.Logger,
	})
	s.generations = generation.New(generation.Options{
		Store: s.store, Engine: s.engine, Clock: o.Clock, Worker: s.worker, Logger: o.Logger,
	})
	s.projections = projection.New(projection.Options{
		Store: s.store, Engine: s.engine, Indexes: s.indexes, Places: s.places, Clock: o.Clock, Logger: o.Logger,
		CacheBytes: int64(o.ProjectionCacheMiB) << 20, Hold: s.deploy.Hold, SpecPrepared: s.deploy.SpecPrepared,
		Worker: s.worker, Changed: s.tail.Stir,
	})

	// What follows from events.
	s.schedule = schedule.New(schedule.Options{
		Store: s.store, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, MaxPerInstance: o.ScheduledMaxPerInstance,
		Execute: s.engine.ExecuteInOrder, Restoring: s.restoring,
	})
	s.sagas = saga.New(saga.Options{
		Store: s.store, Engine: s.engine, Specs: s.deploy, Clock: o.Clock, Worker: s.worker, Logger: o.Logger,
		Most:     o.SagasMax,
		PerWrite: o.SagasPerWrite,
	})
	s.openListeners(ctx)

	// Logs, checkpoints, the search for damage, backups, erasures and attention.
	if err := s.openProofs(); err != nil {
		return err
	}
	s.checkpoints = checkpoint.New(checkpoint.Options{
		Store: s.store, Engine: s.engine, Log: s.logs, Clock: o.Clock, Logger: o.Logger, Worker: s.worker,
	})
	s.scrub = scrub.New(scrub.Options{
		Store: s.store, Log: s.logs, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, Committed: s.committed,
		Spaces: spaces(),
	})
	if err := s.openBackups(ctx); err != nil {
		return err
	}
	s.openErasures()
	s.openAttention(ctx)
	return nil
}

// restoring reports whether the spec of an environment still has to be restored.
func (s *Server) restoring(t j17.Tenant) bool { return s.restoration.of(t) }

// committed counts the events that were written since the start.
func (s *Server) committed() uint64 { return s.engine.Stats().Events }

// takeUp releases the claims on work that was in progress when the last process on the store ended, so that the work
// goes on. If that fails, the work waits for its leases to end.
func (s *Server) takeUp(ctx context.Context) {
	released, err := s.store.ReleaseClaims(ctx)
	switch {
	case err != nil:
		s.options.Logger.LogAttrs(ctx, slog.LevelWarn, "what was cut short goes on when its leases are over", slog.Any("error", err))
	case released > 0:
		s.options.Logger.LogAttrs(ctx, slog.LevelInfo, "what was cut short goes on", slog.Int("items", released))
	}
}

// listen opens the listeners.
func (s *Server) listen(ctx context.Context) (err error) {
	s.connections = newConnections(s.options.Logger, s.options.TrustedProxies)
	var listen net.ListenConfig
	if s.public, err = listen.Listen(ctx, "tcp", s.options.Listen); err != nil {
		return fmt.Errorf("the public address cannot be listened on: %w", err)
	}
	if s.internal, err = listen.Listen(ctx, "tcp", s.options.InternalListen); err != nil {
		return fmt.Errorf("the internal address cannot be listened on: %w", err)
	}
	for _, l := range []net.Listener{s.public, s.internal} {
		if socket, is := l.(*net.TCPListener); is {
			s.sockets = append(s.sockets, socket)
		}
	}
	s.public, s.internal = s.connections.wrap(s.public), s.connections.wrap(s.internal)
	return nil
}

// Close releases what Open opened. It is safe to call more than once. It waits for readers of the store as long as run
// waits for requests; those that make no progress by then are left behind.
func (s *Server) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.public, s.internal, s.plain} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.restoration.close()
	s.restoration = nil
	if s.runner != nil {
		errs = append(errs, s.runner.Close())
		s.runner = nil
	}
	if s.store != nil {
		//nolint:forbidigo // nobody waits for a server that closes
		end, cancel := context.WithTimeout(context.Background(), s.drainTime())
		errs = append(errs, s.store.Shutdown(end))
		cancel()
		s.store = nil
	}
	if s.node != nil {
		//nolint:forbidigo // the same
		end, cancel := context.WithTimeout(context.Background(), leaveTime)
		if err := s.node.Leave(end); err != nil {
			s.options.Logger.LogAttrs(end, slog.LevelWarn, "the database was not told that this node ends: another one waits until it is silent for long", slog.Any("error", err))
		}
		cancel()
		s.node = nil
	}
	return errors.Join(errs...)
}

// api completes the options of the HTTP interface with those that every server has.
func (s *Server) api(o httpapi.Options) *httpapi.API {
	o.Loader = &loading.Loader{Engine: s.engine, Store: s.store, Log: s.logs, Loaded: s.usage.Loaded, Memory: Memory()}
	o.Engine, o.Store, o.Registry, o.Auth, o.Blobs, o.Deploy = s.engine, s.store, s.registry, s.auth, s.blobs, s.deploy
	o.Tail, o.Indexes, o.Projections, o.Places, o.Tagging, o.Generations = s.tail, s.indexes, s.projections, s.places,
		s.tagging, s.generations
	for _, p := range s.parts() {
		o.Metrics = append(o.Metrics, p.Metrics...)
	}
	o.Checkpoints, o.Erasures, o.Scrub = s.checkpoints, s.erasures, s.scrub
	o.Logs = s.logs
	o.Usage, o.Worker, o.Sagas, o.Listeners, o.Schedule = s.usage, s.worker, s.sagas, s.listeners, s.schedule
	o.Backups, o.Attention = s.backups, s.attention
	o.TrustedProxies, o.ForwardedHeader = s.options.TrustedProxies, s.options.ForwardedHeader
	o.StreamsPerKey, o.Streams = s.options.StreamsPerKey, s.options.Streams
	o.Keys, o.Addresses = rateLimit(s.options.KeyRate), rateLimit(s.options.AddressRate)
	if s.node != nil {
		o.Working = s.node.Works
	}
	if r := s.restoration; r != nil {
		o.Restoring, o.RestoringAny = r.of, func() bool { return r.left() > 0 }
	}
	o.Dashboard, o.PublicPath = s.screen, s.options.PublicPath
	o.Clock, o.Logger, o.Version, o.BaseDomain = s.options.Clock, s.options.Logger, s.options.Version,
		s.options.BaseDomain
	return httpapi.New(o)
}

func rateLimit(perMinute int) *auth.RateLimit {
	if perMinute <= 0 {
		return nil
	}
	return auth.NewRateLimit(perMinute)
}

// run serves api until the context ends, then drains: it no longer reports that it is ready, answers the requests in
// progress, and returns. Requests that are not answered within drainTime are cut off. workers run beside it and are
// stopped after the listeners.
func (s *Server) run(ctx context.Context, api *httpapi.API, workers ...func(context.Context) error) error {
	if !s.options.Store.Given() {
		folder, err := os.Stat(s.storeFolder()) // before the first answer
		if err != nil {
			return fmt.Errorf("the data folder cannot be looked at: %w", err)
		}
		workers = append(workers, func(ctx context.Context) error { s.watchFolder(ctx, api, folder); return nil })
	}
	if s.node != nil {
		workers = append(workers, s.watchNode)
	}
	requests, stopRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRequests()
	handler := api.Public()
	if s.face != nil {
		handler = s.face(handler)
	}
	servers := map[net.Listener]*http.Server{
		s.public:   s.httpServer(requests, s.public, handler),
		s.internal: s.httpServer(requests, s.internal, api.Internal()),
	}
	if s.plain != nil {
		servers[s.plain] = s.httpServer(requests, s.plain, s.plainHandler)
	}

	// Work and serve until the end, or until something fails. The first clients wait for the builds of an earlier
	// deployment, as they would have waited for its answer.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	g, failed := errgroup.WithContext(ctx)
	if s.options.FitCollector {
		workers = append(workers, func(ctx context.Context) error { newCollector().run(ctx, s.worker); return nil })
	}
	s.building.Store(true)
	for _, p := range s.parts() {
		if p.Work.Run != nil {
			workers = append(workers, p.Work.Run)
		}
	}
	for _, worker := range workers {
		g.Go(func() error { return worker(work) })
	}
	var answered *direct.Front
	var waits atomic.Bool // whether clients wait for builds
	waits.Store(len(s.early) > 0)
	for l, h := range servers {
		public := l == s.public
		if _, plain := l.(*watched); plain && public {
			answered = direct.Before(
				l, h, func(method, path string) bool { return !waits.Load() && httpapi.Direct(method, path) },
			)
			l = answered
		}
		g.Go(func() error {
			if public {
				s.allBuilt(failed, s.early)
				waits.Store(false)
			}
			return serve(h, l)
		})
	}
	<-failed.Done()

	// Let requests end, but not those that arrived in part and have stalled. If a request does not end in time, its
	// context is cancelled and its connection closed.
	api.Drain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drainTime())
	defer cancel()
	var looking sync.WaitGroup
	stalled, stopLooking := context.WithCancel(drain)
	looking.Go(func() { api.EndStalled(stalled) })
	var drained errgroup.Group
	for l, h := range servers {
		drained.Go(func() error {
			err := h.Shutdown(drain) // also closes the listener
			if answered != nil && l == s.public {
				err = errors.Join(err, answered.Shutdown(drain))
			}
			return err
		})
	}
	err := drained.Wait()
	stopLooking()
	looking.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		s.options.Logger.WarnContext(ctx, "requests that had not ended when the server stopped were cut off", slog.Duration("after", s.drainTime()))
		err = nil
		stopRequests()
		for _, h := range servers {
			err = errors.Join(err, h.Close())
		}
		if answered != nil {
			answered.Abort()
		}
	}
	stopWork()
	return errors.Join(err, g.Wait())
}

// drainTime is how long requests in progress may take when the server stops.
func (s *Server) drainTime() time.Duration {
	if s.options.DrainTime > 0 {
		return s.options.DrainTime
	}
	return defaultDrainTime
}

// folderInterval is how often the server checks that its data folder still exists.
const folderInterval = time.Second

// storeFolder is where the store's files are.
func (s *Server) storeFolder() string { return s.options.storeFolder() }

func (o *Options) storeFolder() string { return filepath.Join(o.Dir, "store") }

// watchFolder notices when the data folder is removed or replaced under the running server. The open files stay
// readable, but further writes would be lost with the process.
func (s *Server) watchFolder(ctx context.Context, api *httpapi.API, first fs.FileInfo) {
	clk := clock.System{} // the real time, even if the server's clock is moved
	for clk.Wait(ctx, clk.Now().Add(folderInterval)) == nil {
		now, err := os.Stat(s.storeFolder())
		if err == nil && os.SameFile(first, now) {
			continue
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			api.Lose()
			s.options.Logger.ErrorContext(ctx, "the data folder is gone: events are refused from now on. What can still be read can be exported; restart the server once the folder is back",
				slog.String("folder", s.options.Dir))
			return
		}
	}
}

// settle hands specs to the engine after the registry has found out the outcome of a deployment that was unknown, or
// when another server of the same store has deployed.
func (s *Server) settle(ctx context.Context) error {
	var failed []environment
	s.worker.Every(
		ctx,
		worker.Loop{Name: "settled_specs", Wake: s.registry.Settled(), Do: func(ctx context.Context) error {
			s.handover(nil, nil).run(ctx, s.owned())
			return nil
		}},
		worker.Loop{
			Name: "moved_specs", Wake: s.registry.Specs.Moved(), Eager: true,
			Do: func(ctx context.Context) error {
				moved := failed
				for _, at := range s.registry.Specs.TakeMoved() {
					if i, ok := s.registry.Instances.ByID(at.Instance); ok && s.owns(i) {
						moved = append(moved, environment{at.Instance, at.Environment})
					}
				}
				failed = s.handover(nil, nil).round(ctx, moved)
				return leftOver(failed)
			},
		},
	)
	return nil
}

func serve(h *http.Server, l net.Listener) error {
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the listener on %s failed: %w", l.Addr(), err)
	}
	return nil
}

// Limits on clients that are slow, or send too much before they are authenticated.
const (
	headerTime = 10 * time.Second
	readTime   = 60 * time.Second
	writeTime  = 120 * time.Second
	idleTime   = 120 * time.Second
)

// httpServer returns the server for a listener. When it stops, no further connections are let in.
func (s *Server) httpServer(requests context.Context, l net.Listener, h http.Handler) *http.Server {
	server := s.limited(requests, l, h)
	server.RegisterOnShutdown(s.connections.end)
	return server
}

// limited returns a server for a listener with the limits on its clients. Long headers are let in only if their memory
// is counted, which it is not on encrypted connections: HTTP/2 reads the headers of many requests side by side.
func (s *Server) limited(requests context.Context, l net.Listener, h http.Handler) *http.Server {
	longest := httpapi.MaxHeader
	if _, plain := l.(*watched); plain {
		longest = httpapi.LongestHeader
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    longest,
		ErrorLog:          slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext:       httpapi.ConnContext,
		ConnState:         s.connections.observe,
	}
}
