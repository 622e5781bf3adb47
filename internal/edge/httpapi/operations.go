package httpapi

import (
	"maps"
	"net/http"

	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/edge/openapi"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// operation describes a row of the table of routes for who reads about the API: what goes in and what comes out.
type operation struct {
	id, about string
	// takes is the shape of the body, nil for none; with optional it may be left out.
	takes    any
	optional bool
	// gives is the shape of the answer, nil for {"ok":true}; made, that the status is 201. anew is what comes with 201 beside
	// what comes with 200, where both are possible.
	gives any
	made  bool
	anew  any
	// tried is what comes with 200 in place of gives where the request asks what would happen, nil where it cannot.
	tried any
	// accepted is what comes with 202: beside what gives says, or alone where gives is nil.
	accepted any
	// tagged tells that the answer has an entity tag and that whoever has it already is told so, as with all reads with a key.
	tagged bool
	// places is the shape of the places that a type has to have for the row to be about it, "" where any type will do.
	places string
	// alike tells that nothing of the row depends on the aggregate type, so that it stands in a document once and not for each type.
	alike bool
	// headers are those of the answer that only few answers have.
	headers map[string]openapi.Header
}

// Shapes that are no JSON objects of package wire.
type (
	// rows are a page of a list: its name and the shape of a row.
	rows struct {
		plural string
		row    any
	}
	// linesOf are objects of a shape, one a line.
	linesOf struct{ row any }
	// file is a body of a media type.
	file struct{ media string }
	// either is one of two shapes.
	either struct{ one, other any }
	// area is an area in the form of GeoJSON.
	area struct{}
	// form is what an HTML form sends: a name and a file.
	form struct{}
)

// operations describes every row by its method and pattern; those of the administration without what mounted puts in front.
func operations() map[string]operation {
	all := generalOperations()
	maps.Copy(all, checkpointOperations())
	maps.Copy(all, scrubOperations())
	return all
}

// generalOperations describes the rows that do not stand with their handlers.
func generalOperations() map[string]operation {
	events := either{file{typeLines}, file{typeJSON}}
	sign := map[string]openapi.Header{HeaderSign: {About: "Which development server this is."}}
	next := map[string]openapi.Header{headerNext: {About: "Where the next page starts, for pages of lines."}}
	fed := map[string]openapi.Header{headerNext: next[headerNext], headerPosition: {About: "How far was looked, for pages of lines."}}
	position := map[string]openapi.Header{headerPosition: {About: "Up to which position the export has all events: a trailer."}}
	tag := map[string]openapi.Header{"ETag": {About: "The entity tag of the spec."}}
	all := map[string]operation{
		// What a server says of itself.
		"GET /{$}":    {id: "getServer", about: "What this server is", gives: wire.Server{}},
		"GET /livez":  {id: "getLiveness", about: "Whether the process answers", headers: sign},
		"GET /readyz": {id: "getReadiness", about: "Whether the server takes writes, or answers reads", headers: sign},

		"GET " + openAPIPath:   {id: "getOpenAPI", about: "This document", gives: file{typeJSON}, tagged: true},
		"GET " + corePagesPath: {id: "getCorePages", about: "The documentation that an assistant needs to write a spec and to call its API", gives: file{typeText}, tagged: true},

		// Aggregates.
		"GET /{type}":                    {id: "listIDs", about: "The ids of an aggregate type, or the states of a singleton", gives: either{wire.IDs{}, wire.Singleton{}}},
		"GET /{type}/{id}":               {id: "getState", about: "The state of an aggregate, now or in the past", gives: wire.State{}},
		"GET /{type}/nearby/stream":      {id: "streamNearby", about: "Aggregates around a point, as they come and go", gives: file{typeStream}, places: spec.Point},
		"GET /{type}/containing/stream":  {id: "streamContaining", about: "Aggregates whose areas have a point, as they come and go", gives: file{typeStream}, places: spec.Polygon},
		"GET /{type}/within/stream":      {id: "streamWithin", about: "Aggregates whose points are in an area, as they come and go", gives: file{typeStream}, places: spec.Point},
		"GET /{type}/nearby":             {id: "listNearby", about: "Aggregates around a point, nearest first", gives: either{wire.Nearby{}, file{typeGeo}}, places: spec.Point},
		"GET /{type}/containing":         {id: "listContaining", about: "Aggregates whose areas have a point", gives: either{wire.Containing{}, file{typeGeo}}, places: spec.Polygon},
		"GET /{type}/within":             {id: "listWithin", about: "Aggregates whose points are in an area", gives: either{wire.Within{}, file{typeGeo}}, places: spec.Point},
		"POST /{type}/within":            {id: "searchWithin", about: "Aggregates whose points are in an area that the body has", takes: area{}, gives: either{wire.Within{}, file{typeGeo}}, places: spec.Point},
		"GET /{type}/{id}/length":        {id: "getLength", about: "The number of events of an aggregate", gives: wire.Length{}},
		"GET /{type}/{id}/events":        {id: "listEvents", about: "The events of an aggregate", gives: either{wire.Events{}, linesOf{wire.Event{}}}, headers: next},
		"GET /{type}/{id}/events/stream": {id: "streamEvents", about: "The events of an aggregate as they come", gives: file{typeStream}},
		"GET /_events":                   {id: "listFeed", about: "The events of the environment", gives: either{wire.FeedPage{}, linesOf{wire.Event{}}}, headers: fed},
		"GET /_events/stream":            {id: "streamFeed", about: "The events of the environment as they come", gives: file{typeStream}},
		"POST /_transaction":             {id: "writeTransaction", about: "Write events to several aggregates, all or none", takes: wire.WriteTransaction{}, gives: wire.TransactionWritten{}, made: true, tried: wire.WriteDryRun{}},
		"POST /{type}/_new":              {id: "createBatch", about: "Write events to a new aggregate, all or none", takes: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{}},
		"POST /{type}/_new/{event}":      {id: "createEvent", about: "Write one event to a new aggregate", takes: wire.WriteEvent{}, gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{}},
		"POST /{type}/{id}":              {id: "writeBatch", about: "Write events to an aggregate, all or none", takes: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{}},
		"POST /{type}/{id}/{event}":      {id: "writeEvent", about: "Write one event to an aggregate", takes: wire.WriteEvent{}, gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{}},

		// Projections.
		"GET /_projections/{name}":             {id: "getProjection", about: "The rows of a projection, or in the array form what it yields for its parameters", gives: either{wire.Rows{}, wire.Projected{}}},
		"GET /_projections/{name}/_count":      {id: "countRows", about: "How many rows a projection has", gives: wire.RowCount{}},
		"GET /_projections/{name}/_stream":     {id: "streamRows", about: "The rows of a projection as they come, change and go", gives: file{typeStream}},
		"GET /_projections/{name}/{id}/stream": {id: "streamProjectionOf", about: "What a projection yields for an aggregate, as it changes", gives: file{typeStream}},
		"GET /_projections/{name}/{id}":        {id: "getProjectionOf", about: "What a projection yields for an aggregate, now or in the past", gives: wire.Projected{}},

		// Operators by themselves.
		"GET /setup":            {id: "getSetupPage", about: "A form for the first operator", gives: file{"text/html"}},
		"POST /api/setup":       {id: "setup", about: "Create the first operator", takes: wire.Setup{}, gives: wire.SetUp{}, made: true},
		"POST /api/login":       {id: "login", about: "Get an operator's token", takes: wire.Login{}, gives: wire.LoggedIn{}},
		"POST /api/logout":      {id: "logout", about: "Make the token good no more"},
		"GET /api/me":           {id: "getMe", about: "The operator who asks", gives: wire.Operator{}},
		"POST /api/me/password": {id: "changePassword", about: "Change one's own password", takes: wire.OwnPassword{}},

		// Operators, by those who may.
		"GET /api/operators":                           {id: "listOperators", about: "The operators", gives: rows{"operators", wire.Operator{}}},
		"POST /api/operators":                          {id: "createOperator", about: "Create an operator", takes: wire.NewOperator{}, gives: wire.Operator{}, made: true},
		"GET /api/operators/{id}":                      {id: "getOperator", about: "An operator", gives: wire.Operator{}},
		"PATCH /api/operators/{id}":                    {id: "changeOperator", about: "Give an operator another role", takes: wire.NewRole{}, gives: wire.Operator{}},
		"DELETE /api/operators/{id}":                   {id: "deleteOperator", about: "Delete an operator"},
		"POST /api/operators/{id}/password":            {id: "resetPassword", about: "Give an operator another password", takes: wire.NewPassword{}},
		"POST /api/operators/{id}/revoke_tokens":       {id: "revokeTokens", about: "Log an operator out everywhere"},
		"PUT /api/operators/{id}/grants/{instance}":    {id: "grantInstance", about: "Let an operator work in an instance", gives: wire.Operator{}},
		"DELETE /api/operators/{id}/grants/{instance}": {id: "withdrawInstance", about: "Let an operator work in an instance no more", gives: wire.Operator{}},
		"POST /api/signing_keys/rotate":                {id: "rotateSigningKey", about: "Sign tokens with a new key", takes: wire.KeyRotation{}, optional: true},
		"GET /api/nodes":                               {id: "listNodes", about: "The workers", gives: rows{"nodes", wire.Node{}}},

		// Instances.
		"GET /api/instances":                {id: "listInstances", about: "The instances that one may see", gives: rows{"instances", wire.Instance{}}},
		"POST /api/instances":               {id: "createInstance", about: "Create an instance", takes: wire.NewInstance{}, gives: wire.Instance{}, made: true},
		"GET /api/instances/{id}":           {id: "getInstance", about: "An instance, its plan and what it has used", gives: wire.InstanceUse{}},
		"PATCH /api/instances/{id}":         {id: "changeInstance", about: "Rename an instance, or give it another plan", takes: wire.InstanceChange{}, gives: wire.Instance{}},
		"DELETE /api/instances/{id}":        {id: "deleteInstance", about: "Delete an instance and all that it has", takes: wire.Deletion{}, optional: true},
		"GET /api/instances/{id}/operators": {id: "listInstanceOperators", about: "Who may work in an instance", gives: rows{"operators", wire.Operator{}}},
		"GET /api/instances/{id}/usage":     {id: "getUsage", about: "What an instance has used, by day", gives: wire.Days{}},
		"GET /api/plans":                    {id: "listPlans", about: "The plans of the server", gives: wire.Plans{}},

		// API keys.
		"GET /api/instances/{id}/keys":            {id: "listKeys", about: "The API keys of an instance", gives: rows{"keys", wire.Key{}}},
		"POST /api/instances/{id}/keys":           {id: "createKey", about: "Create an API key", takes: wire.NewKey{}, gives: wire.MadeKey{}, made: true},
		"GET /api/keys/{id}":                      {id: "getKey", about: "An API key", gives: wire.Key{}},
		"POST /api/keys/{id}/rotate":              {id: "rotateKey", about: "Replace an API key by a new one", takes: struct{}{}, optional: true, gives: wire.MadeKey{}, made: true},
		"POST /api/keys/{id}/schedule_revocation": {id: "scheduleRevocation", about: "Say when an API key is good no more", takes: wire.Revocation{}, gives: wire.Key{}},
		"DELETE /api/keys/{id}":                   {id: "revokeKey", about: "Revoke an API key", gives: wire.Key{}},

		// What has happened.
		"GET /api/audit":                       {id: "listRecords", about: "The audit log, the newest first", gives: wire.Records{}},
		"GET /api/audit/export":                {id: "exportRecords", about: "The audit log, one record a line", gives: linesOf{wire.Record{}}},
		"GET /api/instances/{id}/audit":        {id: "listInstanceRecords", about: "The audit log of an instance", gives: wire.Records{}},
		"GET /api/instances/{id}/audit/export": {id: "exportInstanceRecords", about: "The audit log of an instance, one record a line", gives: linesOf{wire.Record{}}},
		"GET /api/" + faultPattern:             {id: "getError", about: "Why a request failed", gives: wire.Failed{}},

		// Specs of an instance, on the control host.
		"POST /api/instances/{instance_}/spec":                   {id: "deploySpec", about: "Deploy a spec, or try it", takes: file{typeJSON}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, accepted: wire.SpecPrepared{}, headers: tag},
		"POST /api/instances/{instance_}/spec/rollback":          {id: "rollBackSpec", about: "Go back to an earlier version of the spec", takes: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: tag},
		"POST /api/instances/{instance_}/spec/promote":           {id: "promoteSpec", about: "Copy a spec from one environment to another", takes: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: tag},
		"GET /api/instances/{instance_}/spec":                    {id: "getInstanceSpec", about: "The deployed spec", gives: wire.Spec{}, tagged: true},
		"GET /api/instances/{instance_}/spec/history":            {id: "listInstanceSpecs", about: "All versions of the spec", gives: rows{"versions", wire.Deployment{}}},
		"GET /api/instances/{instance_}/spec/versions/{version}": {id: "getInstanceSpecVersion", about: "A version of the spec", gives: wire.Spec{}, tagged: true},
		"GET /api/instances/{instance_}/spec/diff":               {id: "diffInstanceSpecs", about: "What two versions of the spec say differently", gives: wire.Differences{}},
		"GET /api/instances/{instance_}/projections":             {id: "listInstanceProjections", about: "The projections of an environment", gives: wire.Projections{}},

		"POST /_dev/clock/advance": {id: "advanceClock", about: "Move the clock of a development server", takes: wire.Advance{}, gives: wire.Advanced{}},

		// An environment, on its own host or on the control host.
		"POST tombstone/{type}/{aggregate}":      {id: "createTombstone", about: "Ask for the erasure of an aggregate, or what it would reach", takes: wire.NewTombstone{}, optional: true, gives: wire.TombstoneDryRun{}, anew: wire.TombstoneShown{}},
		"GET tombstones":                         {id: "listTombstones", about: "What was erased or is to be, the newest first", gives: wire.Tombstones{}},
		"GET tombstones/{tombstone}":             {id: "getTombstone", about: "A tombstone and how far it is", gives: wire.TombstoneShown{}},
		"GET tombstones/{tombstone}/streams":     {id: "listTombstoneStreams", about: "All streams that an erasure has reached", gives: wire.AffectedStreams{}},
		"GET tombstones/{tombstone}/certificate": {id: "getCertificate", about: "The signed certificate of an erasure", gives: file{"text/plain"}},
		"DELETE tombstones/{tombstone}":          {id: "cancelTombstone", about: "Cancel a tombstone that is pending", gives: wire.TombstoneShown{}},
		"POST tombstones/{tombstone}/execute":    {id: "executeTombstone", about: "Carry out an erasure, in the background", takes: wire.ExecuteTombstone{}, optional: true, accepted: wire.TombstoneShown{}},
		"GET " + faultPattern:                    {id: "getEnvironmentError", about: "Why a request failed", gives: wire.Failed{}},
		"GET spec":                               {id: "getSpec", about: "The deployed spec", gives: wire.Spec{}, tagged: true},
		"GET spec/history":                       {id: "listSpecs", about: "All versions of the spec", gives: rows{"versions", wire.Deployment{}}},
		"GET spec/versions/{version}":            {id: "getSpecVersion", about: "A version of the spec", gives: wire.Spec{}, tagged: true},
		"GET spec/diff":                          {id: "diffSpecs", about: "What two versions of the spec say differently", gives: wire.Differences{}},
		"GET spec/prepared":                      {id: "getPreparedSpec", about: "The spec that is deployed once its indexes are built", gives: wire.PreparedShown{}},
		"DELETE spec/prepared":                   {id: "cancelPreparedSpec", about: "Give up the spec that is being prepared"},
		"GET tags":                               {id: "listTags", about: "The tags that the spec declares, and how far older events are with them", gives: wire.Tags{}},
		"GET projections":                        {id: "listProjections", about: "The projections, those of the spec and those that were posted", gives: wire.Projections{}},
		"POST projections":                       {id: "postProjection", about: "Deploy the definition of a projection beside the spec", takes: file{typeJSON}, gives: either{wire.PostedProjection{}, wire.ProjectionDryRun{}}, anew: wire.PostedProjection{}, accepted: wire.PostedProjection{}},
		"GET projections/{name}":                 {id: "describeProjection", about: "A projection, where it is declared and how far its index is", gives: wire.Projection{}},
		"DELETE projections/{name}":              {id: "removeProjection", about: "Remove a projection that was posted"},
		"POST projections/{name}/rebuild":        {id: "rebuildProjection", about: "Build the indexes of a projection anew", takes: struct{}{}, optional: true, accepted: wire.Projection{}},
		"POST projections/{name}/verify":         {id: "verifyProjection", about: "Compare the indexes of a projection with the events", takes: struct{}{}, optional: true, gives: wire.VerifiedProjection{}},
		"DELETE projections/{name}/build":        {id: "cancelProjectionBuild", about: "Give up what is being built for a projection"},
		"GET places":                             {id: "describePlaces", about: "The places that aggregates have, and how far those of older events are", gives: wire.Places{}},
		"POST places/verify":                     {id: "verifyPlaces", about: "Compare the places of aggregates with the events", takes: struct{}{}, optional: true, gives: wire.VerifiedPlaces{}},
		"GET blobs":                              {id: "listBlobs", about: "The files", gives: rows{"blobs", wire.Blob{}}},
		"POST blobs":                             {id: "putBlob", about: "Upload a file", takes: form{}, gives: wire.Stored{}, anew: wire.Stored{}},
		"GET blobs/{name}":                       {id: "getBlob", about: "The content of a file", gives: file{"application/octet-stream"}, tagged: true, headers: contentHeaders()},
		"GET blobs/{name}/versions":              {id: "listBlobVersions", about: "The versions of a file", gives: rows{"versions", wire.Blob{}}},
		"DELETE blobs/{name}":                    {id: "deleteBlob", about: "Delete a version of a file, or all"},
		"GET debug":                              {id: "getDebug", about: "What is traced", gives: wire.DebugState{}},
		"POST debug":                             {id: "setDebug", about: "Trace custom code for a while", takes: wire.Debugging{}, gives: wire.DebugState{}},
		"GET implications/failed":                {id: "listFailedImplications", about: "Writes that were refused for what they implied", gives: rows{"implications", decider.ImplicationFailure{}}},
		"GET sagas":                              {id: "listSagas", about: "The sagas, the newest first", gives: rows{"sagas", wire.Saga{}}},
		"GET sagas/{saga}":                       {id: "getSaga", about: "A saga with all that has happened to it", gives: wire.SagaDetail{}},
		"POST sagas/{saga}/retry":                {id: "retrySaga", about: "Let a saga go on that has failed or was given up", gives: wire.SagaDetail{}},
		"GET listeners":                          {id: "listListeners", about: "The listeners of the spec, their secrets and how far they are", gives: rows{"listeners", wire.Listener{}}},
		"POST listeners/{name}/pause":            {id: "pauseListener", about: "Tell a listener nothing more until it is resumed", takes: struct{}{}, optional: true, gives: wire.ListenerChanged{}},
		"POST listeners/{name}/resume":           {id: "resumeListener", about: "Let a listener go on where it was stopped", takes: struct{}{}, optional: true, gives: wire.ListenerChanged{}},
		"POST listeners/{name}/rotate_secret":    {id: "rotateListenerSecret", about: "Give a listener a new secret", takes: struct{}{}, optional: true, gives: wire.ListenerChanged{}},
		"POST listeners/{name}/replay":           {id: "replayListener", about: "Tell a listener of events again, or count them", takes: wire.ListenerReplay{}, gives: wire.ListenerReplayed{}, accepted: wire.ListenerReplayed{}},
		"POST listeners/{name}/trigger":          {id: "triggerListener", about: "Send a listener a made-up event", takes: struct{}{}, optional: true, gives: wire.Triggered{}},
		"GET deliveries":                         {id: "listDeliveries", about: "What listeners were told, the newest first", gives: rows{"deliveries", wire.Delivery{}}},
		"GET deliveries/{delivery}":              {id: "getDelivery", about: "A delivery and its tries", gives: wire.DeliveryShown{}},
		"POST deliveries/{delivery}/retry":       {id: "retryDelivery", about: "Send the message of a delivery again", takes: struct{}{}, optional: true, gives: wire.DeliveryShown{}},

		// Events that are to come later.
		"GET scheduled":                        {id: "listScheduled", about: "Events that are to come later, and what became of them, the latest first", gives: wire.ScheduledEvents{}},
		"GET scheduled/dead_letters":           {id: "listDeadLetters", about: "Scheduled events that were given up", gives: wire.ScheduledEvents{}},
		"GET scheduled/dead":                   {id: "listDead", about: "Scheduled events that were given up, as dead_letters", gives: wire.ScheduledEvents{}},
		"DELETE scheduled/{scheduled_id}":      {id: "cancelScheduled", about: "Cancel a scheduled event", gives: wire.ScheduledEvent{}},
		"POST scheduled/{scheduled_id}/cancel": {id: "postCancelScheduled", about: "Cancel a scheduled event, as DELETE does", takes: struct{}{}, optional: true, gives: wire.ScheduledEvent{}},
		"POST scheduled/{scheduled_id}/retry":  {id: "retryScheduled", about: "Try a scheduled event again that was given up or refused", takes: struct{}{}, optional: true, gives: wire.ScheduledEvent{}},

		// Backups.
		"GET backups":                             {id: "listBackups", about: "The backups of the environment, the newest first", gives: rows{"backups", wire.Backup{}}},
		"POST backups":                            {id: "createBackup", about: "Make a backup of the environment", takes: wire.NewBackup{}, optional: true, accepted: wire.BackupShown{}},
		"GET backups/{backup}":                    {id: "getBackup", about: "A backup, and how far it is", gives: wire.BackupShown{}},
		"DELETE backups/{backup}":                 {id: "deleteBackup", about: "Remove a backup, or cancel it"},
		"GET /api/backups":                        {id: "listServerBackups", about: "The backups of the whole server, the newest first", gives: rows{"backups", wire.Backup{}}},
		"POST /api/backups":                       {id: "createServerBackup", about: "Make a backup of the whole server", takes: wire.NewBackup{}, optional: true, accepted: wire.BackupShown{}},
		"GET /api/backups/{backup}":               {id: "getServerBackup", about: "A backup of the whole server, and how far it is", gives: wire.BackupShown{}},
		"DELETE /api/backups/{backup}":            {id: "deleteServerBackup", about: "Remove a backup of the whole server, or cancel it"},
		"GET /api/backup_settings":                {id: "getServerBackupSettings", about: "How backups of the whole server are made and kept", gives: wire.BackupSettingsShown{}},
		"PUT /api/backup_settings":                {id: "changeServerBackupSettings", about: "Change how backups of the whole server are made and kept", takes: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{}},
		"GET /api/instances/{id}/backup_settings": {id: "getBackupSettings", about: "How backups of an instance are made and kept", gives: wire.BackupSettingsShown{}},
		"PUT /api/instances/{id}/backup_settings": {id: "changeBackupSettings", about: "Change how backups of an instance are made and kept", takes: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{}},

		// Whole files of events.
		"GET export":        {id: "exportEvents", about: "All events, or the states of all aggregates", gives: events, headers: position},
		"POST import":       {id: "importEvents", about: "Store events that are history", takes: events, gives: wire.Imported{}},
		"POST import_jsonl": {id: "importLines", about: "Store events that are history", takes: events, gives: wire.Imported{}},
		"POST cold_start":   {id: "coldStart", about: "Store history in an environment without events", takes: events, gives: wire.Imported{}},
		"POST inject":       {id: "injectEvents", about: "Write test data", takes: events, gives: wire.Injected{}},

		// Between nodes.
		"POST /internal/control/changes":                              {id: "pollChanges", about: "Wait for changes of the registry", takes: control.Poll{}, gives: control.Update{}},
		"POST /internal/control/specs":                                {id: "putSpec", about: "Store a spec that a worker has accepted", takes: control.SpecPut{}, gives: control.SpecAnswer{}},
		"GET /internal/control/specs/{instance}/{env}/{version}":      {id: "getSpecForWorker", about: "A version of a spec", gives: control.SpecAnswer{}},
		"POST /internal/control/audit":                                {id: "addRecord", about: "Add a record to the audit log", takes: control.Record{}},
		"POST /internal/control/instances/{instance_}/spec":           {id: "deployOnWorker", about: "Deploy a spec, or try it", takes: file{typeJSON}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, accepted: wire.SpecPrepared{}, headers: tag},
		"POST /internal/control/instances/{instance_}/spec/rollback":  {id: "rollBackOnWorker", about: "Go back to an earlier version of the spec", takes: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: tag},
		"POST /internal/control/instances/{instance_}/spec/promote":   {id: "promoteOnWorker", about: "Copy a spec from one environment to another", takes: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: tag},
		"GET /internal/control/instances/{instance_}/projections":     {id: "listProjectionsOfWorker", about: "The projections of an environment", gives: wire.Projections{}},
		"GET /internal/control/instances/{instance_}/backup_settings": {id: "getBackupSettingsOfWorker", about: "How backups of an instance are made and kept", gives: wire.BackupSettingsShown{}},
		"PUT /internal/control/instances/{instance_}/backup_settings": {id: "changeBackupSettingsOfWorker", about: "Change how backups of an instance are made and kept", takes: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{}},
		"GET /internal/control/instances/{instance_}/usage":           {id: "getUsageOfWorker", about: "What an instance has used, by day", gives: wire.Days{}},
		"GET /internal/control/instances/{instance_}/month":           {id: "getMonthOfWorker", about: "What an instance has used of its plan", gives: wire.Used{}},
		"GET /internal/control/scrub":                                 {id: "getScrubOfWorker", about: "How far a worker is with looking for damage, and what it has found", gives: wire.ScrubShown{}},
		"POST /internal/control/scrub":                                {id: "beginScrubOfWorker", about: "Have a worker look for damage now", takes: struct{}{}, optional: true, gives: wire.ScrubShown{}},
		http.MethodGet + " /internal/control/" + faultPattern:         {id: "getErrorOfWorker", about: "Why a request failed", gives: wire.Failed{}},
	}
	maps.Copy(all, proofOperations())
	return all
}
