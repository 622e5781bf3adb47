package wire

import (
	"time"

	"j17"
)

// Backup is a backup of an environment or of a whole server.
type Backup struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Scope  string `json:"scope"`
	// Environment is null for a server.
	Environment *j17.Environment `json:"environment"`
	Kind        string           `json:"kind"`
	// Parent is the backup that an incremental one is based on; null for a full one.
	Parent    *string `json:"parent"`
	Encrypted bool    `json:"encrypted"`
	// Storage is where the backup is: a folder, or s3://bucket/prefix.
	Storage string `json:"storage"`
	// Bytes were newly written for it.
	Bytes       int64          `json:"bytes"`
	Progress    BackupProgress `json:"progress"`
	Error       *string        `json:"error"`
	CreatedAt   time.Time      `json:"created_at"`
	CompletedAt *time.Time     `json:"completed_at"`
	// Position is that of the last event, Size how many there are, Root the one of the environment's log; null for a
	// server, and as long as it is not known.
	Position *string `json:"position"`
	Size     *uint64 `json:"size"`
	Root     *string `json:"root"`
	// Positions are those of the environments of each instance of a server, null where there is no event.
	Positions map[string]map[j17.Environment]*string `json:"positions,omitempty"`
}

// BackupProgress is how many of the events have been gone through.
type BackupProgress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// BackupShown has a backup.
type BackupShown struct {
	Backup Backup `json:"backup"`
}

// NewBackup asks for a backup: full, or incremental where there is one to base it on.
type NewBackup struct {
	Kind string `json:"kind,omitempty"`
}

// BackupSettings are how backups are made and kept, of an instance or of the whole server.
type BackupSettings struct {
	// EveryHours, KeepLast and KeepDays are null where there is no such rule.
	EveryHours *int `json:"every_hours"`
	KeepLast   *int `json:"keep_last"`
	KeepDays   *int `json:"keep_days"`
	// Recipients are the age recipients that backups are encrypted to; none leave them in clear.
	Recipients []string `json:"recipients"`
	// S3 is null where backups go to the server's folder.
	S3 *BackupS3 `json:"s3"`
}

// BackupS3 is where backups go instead of the server's folder. The secret key is not shown.
type BackupS3 struct {
	Endpoint     string `json:"endpoint"`
	Bucket       string `json:"bucket"`
	Region       string `json:"region"`
	Prefix       string `json:"prefix"`
	AccessKey    string `json:"access_key"`
	SecretKeySet bool   `json:"secret_key_set"`
}

// BackupSettingsShown has settings.
type BackupSettingsShown struct {
	Settings BackupSettings `json:"settings"`
}

// BackupSettingsChange changes the settings that it has; null removes a setting.
type BackupSettingsChange struct {
	EveryHours *int         `json:"every_hours,omitempty"`
	KeepLast   *int         `json:"keep_last,omitempty"`
	KeepDays   *int         `json:"keep_days,omitempty"`
	Recipients []string     `json:"recipients,omitempty"`
	S3         *NewBackupS3 `json:"s3,omitempty"`
}

// NewBackupS3 says where backups are to go instead of the server's folder. Without a SecretKey the known one is kept,
// if it belongs to the same endpoint and access key.
type NewBackupS3 struct {
	Endpoint  string `json:"endpoint,omitempty"`
	Bucket    string `json:"bucket,omitempty"`
	Region    string `json:"region,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	AccessKey string `json:"access_key,omitempty"`
	SecretKey string `json:"secret_key,omitempty"`
}
