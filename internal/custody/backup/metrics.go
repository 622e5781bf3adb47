package backup

import "j17/internal/core/part"

// lastName and lastHelp describe the metric of the last backups.
const (
	lastName = "j17_backup_last_completed_seconds"
	lastHelp = "When a backup of the whole server, and when one of an environment, was completed last, in Unix seconds; 0 for never."
)

// metrics are the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_backups_completed_total", "Backups that were completed.",
			func() uint64 { return s.Stats().Completed }),
		part.Counter("j17_backups_failed_total", "Backups that have failed.",
			func() uint64 { return s.Stats().Failed }),
		part.Counter("j17_backup_stored_bytes_total", "Bytes that were newly stored for backups that were completed.",
			func() uint64 { return s.Stats().Bytes }),
		part.Counter("j17_backup_erasures_noted_total", "Erasures that were noted beside backups.",
			func() uint64 { return s.Stats().Noted }),
		part.Gauge("j17_backups_running", "Backups that are being made.",
			func() float64 { return float64(s.Stats().Running) }),
		part.Gauge("j17_backups_waiting", "Backups that wait for their turn.",
			func() float64 { return float64(s.Stats().Waiting) }),
		part.Gauge("j17_backup_folder_writable", "1 unless the folder for backups could not be written when that was tried last.", func() float64 {
			if s.Stats().FolderWritable {
				return 1
			}
			return 0
		}),
		part.Gauge(lastName, lastHelp, func() float64 { return float64(s.Stats().LastServer) }).With("of", "server"),
		part.Gauge(lastName, lastHelp,
			func() float64 { return float64(s.Stats().LastEnvironment) }).With("of", "environment"),
	}
}
