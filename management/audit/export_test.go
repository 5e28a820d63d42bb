// SPDX-License-Identifier: Apache-2.0

package audit

// For the tests, which are outside of the package because their store imports it.
var ParseLine, ParseExport, LineOf = parseLine, parseExport, Entry.line

const (
	StrangerSources, StrangerEntries = strangerSources, strangerEntries
	KnownEntries, ChangeEntries      = knownEntries, changeEntries

	FloodTime, RoundTime, SweepTime = floodTime, roundTime, sweepTime

	LogPrefix, SegmentsPerAge, QueueLength = logPrefix, segmentsPerAge, queueLength
)
