package httpapi

import (
	"sync"

	"j17/internal/base/work"
	"j17/internal/follow/trace"
)

// handlers answer requests. Each holds the services that it asks, and a request's call has what all of them need.
type handlers struct {
	server      serverHandlers
	documents   documentHandlers
	reads       readHandlers
	histories   historyHandlers
	writes      writeHandlers
	feeds       feedHandlers
	traces      traceHandlers
	places      placeHandlers
	projections projectionHandlers
	proofs      proofHandlers
	blobs       blobHandlers
	debug       debugHandlers
	exports     exportHandlers
	imports     importHandlers
	listeners   listenerHandlers
	derived     derivedHandlers
	sagas       sagaHandlers
	schedules   scheduleHandlers
	checkpoints checkpointHandlers
	tombstones  tombstoneHandlers
	backups     backupHandlers
	specs       specHandlers
	accounts    accountHandlers
	sessions    sessionHandlers
	dashboard   dashboardHandlers
	operators   operatorHandlers
	instances   instanceHandlers
	keys        keyHandlers
	audits      auditHandlers
	nodes       nodeHandlers
	scrubs      scrubHandlers
	attention   attentionHandlers
}

// newHandlers returns the handlers of an API.
func newHandlers(o *Options) handlers {
	return handlers{
		server:    serverHandlers{advance: o.AdvanceClock, restoringAny: o.RestoringAny, sign: o.Sign, store: o.Store},
		documents: documentHandlers{engine: o.Engine, projections: o.Projections, documents: &documents{}},
		reads:     readHandlers{engine: o.Engine, registry: o.Registry},
		histories: historyHandlers{engine: o.Engine},
		writes: writeHandlers{
			await: o.AwaitWrite, engine: o.Engine, maxBatch: o.MaxBatchBytes, maxEvent: o.MaxEventBytes,
		},
		feeds: feedHandlers{
			engine: o.Engine, registry: o.Registry, store: o.Store, tail: o.Tail, pageWork: work.Command,
		},
		traces: traceHandlers{
			trace: trace.New(trace.Options{
				Store: o.Store, Schedule: o.Schedule, Sagas: o.Sagas, Listeners: o.Listeners,
				Shown: o.Engine.Shown(),
			}), registry: o.Registry,
		},
		places:      placeHandlers{engine: o.Engine, places: o.Places},
		projections: projectionHandlers{projections: o.Projections},
		proofs:      proofHandlers{engine: o.Engine, logs: o.Logs, store: o.Store},
		blobs:       blobHandlers{blobs: o.Blobs, deploy: o.Deploy},
		debug:       debugHandlers{deploy: o.Deploy, engine: o.Engine, registry: o.Registry},
		exports:     exportHandlers{checkpoints: o.Checkpoints, loader: o.Loader, registry: o.Registry},
		imports:     importHandlers{loader: o.Loader, maxImport: o.MaxImportBytes},
		listeners:   listenerHandlers{listeners: o.Listeners, registry: o.Registry},
		derived: derivedHandlers{
			places: o.Places, projections: o.Projections, tagging: o.Tagging,
			generations: o.Generations,
		},
		sagas:       sagaHandlers{sagas: o.Sagas},
		schedules:   scheduleHandlers{schedule: o.Schedule},
		checkpoints: checkpointHandlers{checkpoints: o.Checkpoints},
		tombstones:  tombstoneHandlers{erasures: o.Erasures},
		backups:     backupHandlers{backups: o.Backups},
		specs:       specHandlers{deploy: o.Deploy, registry: o.Registry},
		accounts:    accountHandlers{auth: o.Auth, registry: o.Registry},
		sessions:    sessionHandlers{auth: o.Auth, public: o.PublicPath, registry: o.Registry},
		dashboard:   dashboardHandlers{files: o.Dashboard, public: o.PublicPath, packed: new(sync.Map)},
		operators:   operatorHandlers{registry: o.Registry},
		instances: instanceHandlers{
			defaultInstance: o.DefaultInstance, deploy: o.Deploy, registry: o.Registry,
			usage: o.Usage,
		},
		keys:      keyHandlers{registry: o.Registry},
		audits:    auditHandlers{registry: o.Registry},
		nodes:     nodeHandlers{registry: o.Registry},
		scrubs:    scrubHandlers{scrub: o.Scrub},
		attention: attentionHandlers{attention: o.Attention, registry: o.Registry},
	}
}
