// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Effect is what an alert on a node prevents.
type Effect string

// The effects of alerts.
const (
	BlocksProvide    Effect = "blocks-provide"    // no job offers the node for use
	BlocksCommission Effect = "blocks-commission" // no job commissions the node
	BlocksPower      Effect = "blocks-power"      // no job switches it by its BMC
	Excluded         Effect = "excluded"          // budgets do not count it, and policies leave it as it is
	Silenced         Effect = "silenced"          // no notification is sent about it
)

// Effects lists every effect with its meaning.
var Effects = []struct {
	Effect  Effect
	Meaning string
}{
	{BlocksProvide, "no job offers the node for use"},
	{BlocksCommission, "no job commissions the node"},
	{BlocksPower, "no job switches the node by its BMC"},
	{
		Excluded,
		"the budget of its group counts it neither as available nor as unavailable, and policies leave it as it is",
	},
	{Silenced, "no notification is sent about the node"},
}

// The limits of alerts.
const (
	MaxAlerts      = 8   // on one node
	maxAlertReason = 300 // bytes
	maxAlertSource = 64  // bytes
)

// Alert is a record on a node of something that somebody found about it: a person, a monitor, or the manager itself.
type Alert struct {
	// The id; it is made of the source and the reason, so the same alert has the same id on every node.
	ID      string   `json:"id"`
	Reason  string   `json:"reason"`            // the reason
	Source  string   `json:"source"`            // who or what found it, such as smartd; by default the caller
	Effects []Effect `json:"effects,omitempty"` // what it prevents; absent: it only informs
	// When it was added. A repetition keeps the time.
	Since time.Time `json:"since"`
	// When it ends by itself; absent: somebody ends it.
	Until *time.Time `json:"until,omitempty"`
	Actor string     `json:"actor"` // the principal that added it
}

// NewAlert returns an alert, or an error of KindInvalid or KindTooLarge. until is when it ends; zero: somebody ends it.
func NewAlert(reason, source string, effects []Effect, until time.Time, actor string, now time.Time) (Alert, error) {
	if source == "" {
		source = Shorten(actor, maxAlertSource)
	}

	switch {
	case reason == "":
		return Alert{}, Errorf(KindInvalid, "an alert needs a reason").Do("give a reason")
	case len(reason) > maxAlertReason:
		return Alert{}, Errorf(KindTooLarge, "the reason has %d bytes, the limit is %d", len(reason), maxAlertReason).
			Do("shorten it")
	case len(source) > maxAlertSource:
		return Alert{}, Errorf(KindTooLarge, "the source has %d bytes, the limit is %d", len(source), maxAlertSource).
			Do("shorten it")
	case !isLine(reason) || !isLine(source):
		return Alert{}, Errorf(KindInvalid, "the reason or the source has control characters").
			Do("write each on one line, as plain text")
	case !until.IsZero() && !until.After(now):
		return Alert{}, Errorf(
			KindInvalid,
			"the alert would end at %s, which is over",
			until.UTC().Format(time.RFC3339),
		).
			Do("give a time to come")
	}

	sum := sha256.Sum256([]byte(source + "\x00" + reason))
	a := Alert{ID: hex.EncodeToString(sum[:5]), Reason: reason, Source: source, Since: now, Actor: actor}

	if !until.IsZero() {
		a.Until = &until
	}

	// The order of the table, so that the same effects are equal.
	for _, row := range Effects {
		if slices.Contains(effects, row.Effect) {
			a.Effects = append(a.Effects, row.Effect)
		}
	}

	for _, e := range effects {
		if !slices.Contains(a.Effects, e) {
			return Alert{}, Errorf(KindInvalid, "%q is no effect of an alert", string(e)).Do("write %s", effectNames())
		}
	}

	return a, nil
}

func effectNames() string {
	all := make([]Effect, len(Effects))
	for i, row := range Effects {
		all[i] = row.Effect
	}

	return Choices(all)
}

// isLine reports whether the text is one line without control characters.
func isLine(text string) bool { return Printable(text) == text && !strings.ContainsAny(text, "\n\t") }

// String describes the alert for people.
func (a Alert) String() string {
	text := fmt.Sprintf("%s (alert %s of %s", a.Reason, a.ID, a.Source)
	if a.Until != nil {
		text += ", until " + a.Until.UTC().Format(time.RFC3339)
	}
	return text + ")"
}

// is reports whether the alerts are equal but for the time and the actor of their addition.
func (a Alert) is(b Alert) bool {
	sameEnd := a.Until == b.Until || a.Until != nil && b.Until != nil && a.Until.Equal(*b.Until)
	return a.ID == b.ID && sameEnd && slices.Equal(a.Effects, b.Effects)
}

// ended reports whether the alert has ended by itself.
func (a Alert) ended(now time.Time) bool { return a.Until != nil && !now.Before(*a.Until) }

// Alerted returns the first alert on the node with the effect, or nil.
func (n Node) Alerted(e Effect) *Alert {
	i := slices.IndexFunc(n.Alerts, func(a Alert) bool { return slices.Contains(a.Effects, e) })
	if i < 0 {
		return nil
	}
	return &n.Alerts[i]
}

// Alert returns a copy of the node with the alert, in the place of an earlier one with the same id. changed is false,
// and there is no entry, if the node has the alert already. It is KindRefused for more than MaxAlerts alerts.
func (n Node) Alert(a Alert, t Trigger) (m Node, entry HistoryEntry, changed bool, err error) {
	i := slices.IndexFunc(n.Alerts, func(b Alert) bool { return a.ID == b.ID })

	switch {
	case i >= 0 && n.Alerts[i].is(a):
		return n, entry, false, nil
	case i < 0 && len(n.Alerts) >= MaxAlerts:
		return n, entry, false, Errorf(KindRefused, "%s has %d alerts, which is the limit", n.Name, MaxAlerts).
			Do("end one of them").With(EndAlert(n.Alerts[0].ID)).About(n.Name)
	}

	m = n.Clone()

	if i >= 0 {
		a.Since = n.Alerts[i].Since
		m.Alerts[i] = a
	} else {
		m.Alerts = append(m.Alerts, a)
	}

	t.Reason = a.String()

	for _, e := range a.Effects {
		t.Reason += ", " + string(e)
	}

	return m, m.log(VerbAlert, n.Status, t), true, nil
}

// EndAlert returns a copy of the node without the alert. changed is false if it has none of that id.
func (n Node) EndAlert(id string, t Trigger) (m Node, entry HistoryEntry, changed bool) {
	i := slices.IndexFunc(n.Alerts, func(a Alert) bool { return a.ID == id })
	if i < 0 {
		return n, entry, false
	}

	text := "ended: " + n.Alerts[i].String()
	if t.Reason != "" {
		text += ": " + t.Reason
	}
	t.Reason = text

	m = n.Clone()
	m.Alerts = slices.Delete(m.Alerts, i, i+1)

	if len(m.Alerts) == 0 {
		m.Alerts = nil
	}

	return m, m.log(VerbAlert, n.Status, t), true
}

// EndedAlerts returns the ids of the alerts that have ended by themselves, and when the next one does; zero: none will.
func (n Node) EndedAlerts(now time.Time) (ids []string, next time.Time) {
	for _, a := range n.Alerts {
		switch {
		case a.ended(now):
			ids = append(ids, a.ID)
		case a.Until != nil && (next.IsZero() || a.Until.Before(next)):
			next = *a.Until
		}
	}

	return ids, next
}

// refusedBy refuses the verb on a node with an alert that blocks it.
func (t Transition) refusedBy(a Alert, n Node) *Error {
	remedy := "end the alert"
	if a.Until != nil {
		remedy = "wait until the alert ends, or end it"
	}

	return Errorf(KindRefused, "%s has an alert that refuses %s: %s", n.Name, t.Verb, a).
		Do("%s", remedy).With(EndAlert(a.ID)).About(n.Name)
}
