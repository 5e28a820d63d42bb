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
	maxLine  = 512 // bytes of a line
	logBurst = 30  // lines at once, per level
	logRate  = 2   // lines per second from then on, per level
)

// bridge passes the log of serf and memberlist on to ours. Any host on the network
// can trigger their messages, so it limits length, characters and rate.
type bridge struct {
	log logrus.FieldLogger

	mu      sync.Mutex
	limit   map[logrus.Level]*rate.Limiter
	dropped map[logrus.Level]int
}

// newLogger makes a logger for serf and memberlist.
func newLogger(to logrus.FieldLogger) *log.Logger {
	return log.New(&bridge{
		log:     to,
		limit:   map[logrus.Level]*rate.Limiter{},
		dropped: map[logrus.Level]int{},
	}, "", 0)
}

// Write logs one line. It never fails, so that serf goes on.
func (b *bridge) Write(p []byte) (int, error) {
	level, text := parseLine(string(p))
	b.mu.Lock()
	if b.limit[level] == nil {
		b.limit[level] = rate.NewLimiter(logRate, logBurst)
	}

	// The next line that passes carries the number of dropped ones.
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

// routine lists the starts of messages that need no action of an operator.
var routine = []string{
	"serf: attempting reconnect to",
	"serf: Shutdown without a Leave",
	"memberlist: Refuting",
}

// parseLine splits a line into level and text. serf logs an error for a peer that
// does not answer and a message that does not parse. That is a warning here: its
// calls return the errors of this process.
func parseLine(line string) (logrus.Level, string) {
	level := logrus.InfoLevel

	text := strings.TrimSpace(line)
	for prefix, l := range map[string]logrus.Level{
		"[DEBUG] ": logrus.DebugLevel,
		"[INFO] ":  logrus.InfoLevel,
		"[WARN] ":  logrus.WarnLevel,
		"[ERR] ":   logrus.WarnLevel,
		"[ERROR] ": logrus.WarnLevel,
	} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			level, text = l, rest
			break
		}
	}

	for _, q := range routine {
		if strings.HasPrefix(text, q) {
			level = logrus.DebugLevel
		}
	}

	if len(text) > maxLine {
		text = text[:maxLine] + "…"
	}

	// One line, without control characters: the text may come from a stranger.
	text = strings.Join(strings.Fields(text), " ")

	return level, strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
