// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"log"
	"strings"
	"sync"
	"unicode"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
)

const (
	maxLine  = 512 // bytes of a line of serf's log
	logBurst = 30  // lines at once, per level
	logRate  = 2   // lines per second from then on, per level
)

// bridge hands the log of serf and memberlist to ours. Anybody on the network
// can make them write, so lines are bounded in length, content and number.
type bridge struct {
	log logrus.FieldLogger

	mu      sync.Mutex
	limit   map[logrus.Level]*rate.Limiter
	dropped map[logrus.Level]int
}

// newLogger makes the logger that serf and memberlist write to.
func newLogger(to logrus.FieldLogger) *log.Logger {
	return log.New(&bridge{
		log:     to,
		limit:   map[logrus.Level]*rate.Limiter{},
		dropped: map[logrus.Level]int{},
	}, "", 0)
}

// Write takes one line.
func (b *bridge) Write(p []byte) (int, error) {
	level, text := parseLine(string(p))
	b.mu.Lock()
	if b.limit[level] == nil {
		b.limit[level] = rate.NewLimiter(logRate, logBurst)
	}

	ok := b.limit[level].Allow()

	lost := b.dropped[level]
	if ok {
		b.dropped[level] = 0
	} else {
		b.dropped[level]++
	}

	b.mu.Unlock()

	if !ok {
		return len(p), nil
	}

	to := b.log
	if lost > 0 {
		to = to.WithField("suppressed", lost)
	}

	switch level {
	case logrus.DebugLevel:
		to.Debug(text)
	case logrus.InfoLevel:
		to.Info(text)
	default:
		to.Warn(text)
	}

	return len(p), nil
}

// quiet are lines that say nothing an operator could act on, at any level.
var quiet = []string{
	"serf: attempting reconnect to",
	"serf: Shutdown without a Leave",
	"memberlist: Refuting",
}

// parseLine splits a line into its level and its text. What serf calls an error
// is a peer that does not answer or a message that does not parse: a warning
// here, because errors of ours come as errors.
func parseLine(line string) (logrus.Level, string) {
	level := logrus.InfoLevel

	text := strings.TrimSpace(line)
	for mark, l := range map[string]logrus.Level{
		"[DEBUG] ": logrus.DebugLevel,
		"[INFO] ":  logrus.InfoLevel,
		"[WARN] ":  logrus.WarnLevel,
		"[ERR] ":   logrus.WarnLevel,
		"[ERROR] ": logrus.WarnLevel,
	} {
		if rest, ok := strings.CutPrefix(text, mark); ok {
			level, text = l, rest
			break
		}
	}

	for _, q := range quiet {
		if strings.HasPrefix(text, q) {
			level = logrus.DebugLevel
		}
	}

	if len(text) > maxLine {
		text = text[:maxLine] + "…"
	}

	text = strings.Join(strings.Fields(text), " ")

	return level, strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}

		return r
	}, text)
}
