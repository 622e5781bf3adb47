package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/plane/control"
)

// backupHandlers administer backups.
type backupHandlers struct {
	backups *backup.Service
}

// adminRoutes are the backups of an environment.
func (h *backupHandlers) adminRoutes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "backups", operator, inspect, "", h.listBackups, operation{
			id: "listBackups", about: "List the backups of the environment, newest first", query: paged(),
			gives: rows{"backups", wire.Backup{}},
		}},
		{0, post, "backups", operator, operate, "backup.create", h.createBackup, operation{
			id: "createBackup", about: "Create a backup of the environment", body: wire.NewBackup{}, optional: true,
			accepted: wire.BackupShown{},
		}},
		{0, get, "backups/{backup}", operator, inspect, "", h.getBackup, operation{
			id: "getBackup", about: "Get a backup and its progress", gives: wire.BackupShown{},
		}},
		{0, remove, "backups/{backup}", operator, operate, "backup.delete", h.deleteBackup, operation{
			id: "deleteBackup", about: "Delete a backup, or cancel one in progress",
		}},
	}
}

// routes are the backups of the whole server, and the settings.
func (h *backupHandlers) routes() []route {
	inspect, server, one := need{control.RightInspect, aServer}, need{control.RightOperate, aServer},
		need{control.RightOperate, instance}
	const settings = "/api/instances/{id}/backup_settings"
	return []route{
		{controlSite, get, "/api/backups", operator, inspect, "", h.listBackups, operation{
			id: "listServerBackups", about: "List the backups of the whole server, newest first", query: paged(),
			gives: rows{"backups", wire.Backup{}},
		}},
		{controlSite, post, "/api/backups", operator, server, "backup.create", h.createBackup, operation{
			id: "createServerBackup", about: "Create a backup of the whole server", body: wire.NewBackup{},
			optional: true, accepted: wire.BackupShown{},
		}},
		{controlSite, get, "/api/backups/{backup}", operator, inspect, "", h.getBackup, operation{
			id: "getServerBackup", about: "Get a backup of the whole server and its progress", gives: wire.BackupShown{},
		}},
		{controlSite, remove, "/api/backups/{backup}", operator, server, "backup.delete", h.deleteBackup, operation{
			id: "deleteServerBackup", about: "Delete a backup of the whole server, or cancel one in progress",
		}},
		{controlSite, get, "/api/backup_settings", operator, server, "", h.getBackupSettings, operation{
			id: "getServerBackupSettings", about: "Get the backup settings of the whole server",
			gives: wire.BackupSettingsShown{},
		}},
		{
			controlSite, put, "/api/backup_settings", operator, server, "backup_settings.change",
			h.changeBackupSettings,
			operation{
				id: "changeServerBackupSettings", about: "Change the backup settings of the whole server",
				query: tryingPlace(), body: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{},
			},
		},
		{controlSite, get, settings, operator, one, "", onWorker("backup_settings", h.getBackupSettings), operation{
			id: "getBackupSettings", about: "Get the backup settings of an instance",
			gives: wire.BackupSettingsShown{},
		}},
		{
			controlSite, put, settings, operator, one, "backup_settings.change",
			onWorker("backup_settings", h.changeBackupSettings),
			operation{
				id: "changeBackupSettings", about: "Change the backup settings of an instance",
				query: tryingPlace(), body: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{},
			},
		},
	}
}

// backupsOf is the tenant whose backups a request is about.
func (*backupHandlers) backupsOf(c *call) j17.Tenant {
	if c.instance == "" {
		return j17.System
	}
	return c.tenant
}

func (h *backupHandlers) listBackups(c *call, w http.ResponseWriter) error {
	l := c.listing()
	all, err := h.backups.List(c.request.Context(), h.backupsOf(c), l.offset, l.limit+1)
	return list(c, w, "backups", l, wire.Each(all, (*backup.Backup).Wire), err)
}

func (h *backupHandlers) createBackup(c *call, w http.ResponseWriter) error {
	var body wire.NewBackup
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	kind := repository.Kind(body.Kind)
	if kind != "" && kind != repository.Full && kind != repository.Incremental {
		return j17.Errorf(j17.CodeInvalidField, "'kind' must be \"full\" or \"incremental\", or be left out").At("kind")
	}
	b, err := h.backups.Create(context.WithoutCancel(c.actorContext()), h.backupsOf(c), kind)
	return c.done(w, http.StatusAccepted, wire.BackupShown{Backup: b.Wire()}, err)
}

func (h *backupHandlers) getBackup(c *call, w http.ResponseWriter) error {
	b, err := h.backups.Get(c.request.Context(), h.backupsOf(c), c.request.PathValue("backup"))
	return c.done(w, http.StatusOK, wire.BackupShown{Backup: b.Wire()}, err)
}

func (h *backupHandlers) deleteBackup(c *call, w http.ResponseWriter) error {
	if err := h.backups.Delete(c.actorContext(), h.backupsOf(c), c.request.PathValue("backup")); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

func (h *backupHandlers) getBackupSettings(c *call, w http.ResponseWriter) error {
	set, err := h.backups.Settings(c.request.Context(), c.instance)
	return c.done(w, http.StatusOK, wire.BackupSettingsShown{Settings: set.Wire()}, err)
}

// changeBackupSettings is PUT /api/instances/{id}/backup_settings and PUT /api/backup_settings: given members are
// changed, null removes a setting. With try=true nothing is changed where no backup could be written.
func (h *backupHandlers) changeBackupSettings(c *call, w http.ResponseWriter) error {
	// What is given, checked.
	var body wire.BackupSettingsChange
	given, err := c.decodeGiven(w, &body)
	if err != nil {
		return err
	}
	if s3 := given.Get("s3"); s3.Kind() == value.Object {
		known := members(reflect.TypeFor[wire.NewBackupS3]())
		for _, m := range s3.Members() {
			if !slices.Contains(known, m.Key) {
				return command.UnknownField("s3", m.Key, known)
			}
		}
	}
	for name, n := range map[string]*int{
		"every_hours": body.EveryHours, "keep_last": body.KeepLast, "keep_days": body.KeepDays,
	} {
		if n != nil && *n < 1 {
			return j17.Errorf(j17.CodeInvalidField, "'%s' must be a whole number from 1 on, or null", name).At(name)
		}
	}

	// How it changes the settings: absent members are left as they are.
	amend := func(set *backup.Settings) {
		for _, m := range given.Members() {
			switch m.Key {
			case "every_hours":
				set.EveryHours = orZero(body.EveryHours)
			case "keep_last":
				set.KeepLast = orZero(body.KeepLast)
			case "keep_days":
				set.KeepDays = orZero(body.KeepDays)
			case "recipients":
				set.Recipients = body.Recipients
			case "s3":
				set.S3 = nil
				if s := body.S3; s != nil {
					set.S3 = &backup.S3{
						Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region, Prefix: s.Prefix,
						AccessKey: s.AccessKey, SecretKey: s.SecretKey,
					}
				}
			}
		}
	}

	// Try a backup with them if that is asked for, and store them.
	if c.query.isSet("try") {
		if err := h.backups.Try(c.request.Context(), c.instance, amend); err != nil {
			return err
		}
	}
	set, err := h.backups.Change(context.WithoutCancel(c.actorContext()), c.instance, amend)
	return c.done(w, http.StatusOK, wire.BackupSettingsShown{Settings: set.Wire()}, err)
}

// orZero returns the value that v points to, the zero value for nil.
func orZero[T any](v *T) (none T) {
	if v == nil {
		return none
	}
	return *v
}
