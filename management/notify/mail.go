// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/contiv/cluster/inventory"
)

// Mail sends events through a relay.
type Mail struct {
	relay    string
	from     string
	to       []string
	host     string
	settings []mail.Option
	implicit *tls.Config // of a relay that speaks TLS at once; nil: another
}

// MailOptions are the parameters of a Mail.
type MailOptions struct {
	Relay string // HOST:PORT
	From  string
	To    []string
	// PlainText sends without TLS. Otherwise the relay must offer STARTTLS, or speak
	// TLS at once on port 465.
	PlainText bool
	User      string // empty: no login
	Password  string
	TLS       *tls.Config // nil: the CAs of the host
}

// NewMail returns a sender. It is KindInvalid for an address that is none.
func NewMail(o MailOptions) (*Mail, error) {
	host, portText, err := net.SplitHostPort(o.Relay)
	port, portErr := strconv.Atoi(portText)

	if err != nil || portErr != nil || host == "" || port < 1 || port > 65535 {
		return nil, inventory.Errorf(inventory.KindInvalid, "the relay is %q", o.Relay).
			Do("write it as HOST:PORT, such as mail.example.com:587")
	}

	if len(o.To) == 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "there is no recipient").Do("name at least one")
	}

	m := &Mail{relay: o.Relay, from: o.From, to: o.To, host: host}
	// The addresses are those of each message.
	if _, err := m.message(Event{}); err != nil {
		return nil, err
	}

	config := o.TLS.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	// The certificate has to be for the relay.
	config.ServerName = host
	m.settings = []mail.Option{mail.WithPort(port), mail.WithTLSConfig(config), mail.WithTimeout(time.Minute)}

	const implicitTLS = 465

	switch {
	case o.PlainText:
		m.settings = append(m.settings, mail.WithTLSPolicy(mail.NoTLS))
	case port == implicitTLS:
		// The connection is encrypted already, so there is nothing to begin.
		m.implicit = config
		m.settings = append(m.settings, mail.WithTLSPolicy(mail.TLSOpportunistic))
	default:
		m.settings = append(m.settings, mail.WithTLSPolicy(mail.TLSMandatory))
	}

	if o.User != "" {
		if o.PlainText {
			return nil, inventory.Errorf(inventory.KindInvalid, "a login without TLS would show the password").
				Do("leave out user, or tls: off")
		}

		m.settings = append(m.settings, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.User),
			mail.WithPassword(o.Password))
	}

	return m, nil
}

// Describe returns the relay and the recipients.
func (m *Mail) Describe() string { return "mail to " + strings.Join(m.to, ", ") + " by " + m.relay }

// message returns the mail about an event.
func (m *Mail) message(e Event) (*mail.Msg, error) {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := msg.From(m.from); err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the sender %q is not a mail address", m.from).
			Do("write one such as clusterm@example.com")
	}

	for _, to := range m.to {
		if err := msg.AddTo(to); err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "the recipient %q is not a mail address", to).
				Do("write one such as ops@example.com")
		}
	}

	text := e.Summary + "\n"
	if e.Detail != "" {
		text += "\n" + e.Detail + "\n"
	}

	// The rows are aligned for people, and easy to filter by.
	for _, row := range []struct{ name, value string }{
		{"manager", e.Manager}, {"event", e.Kind}, {"time", e.Time.UTC().Format(time.RFC3339)},
		{"actor", e.Actor}, {"policy", e.Policy}, {"node", e.Node}, {"group", e.Group},
		{"job", e.Job}, {"rollout", e.Rollout}, {"verb", e.Verb},
		{"nodes", strings.Join(e.Nodes, " ")},
	} {
		if row.value != "" {
			text += fmt.Sprintf("\n%-8s %s", row.name, row.value)
		}
	}

	msg.Subject("[" + e.Manager + "] " + e.Summary)
	// A repetition has the same id, so that a mailbox can drop it.
	msg.SetMessageIDWithValue(strings.Map(idRune, e.ID) + "@" + "clusterm." + strings.Map(idRune, e.Manager))
	msg.SetDateWithValue(e.Time)
	msg.SetBodyString(mail.TypeTextPlain, text+"\n")

	return msg, nil
}

// idRune replaces a rune that a message id may not contain.
func idRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
		return r
	}
	return '_'
}

// Send hands the event over to the relay.
func (m *Mail) Send(ctx context.Context, e Event, _ time.Time) error {
	msg, err := m.message(e)
	if err != nil {
		return Permanent(err)
	}

	// Each message has a connection of its own: there are few.
	client, err := mail.NewClient(m.host, append(slices.Clip(m.settings), mail.WithDialContextFunc(m.dial(ctx)))...)
	if err != nil {
		return Permanent(err)
	}
	if err := client.DialWithContext(ctx); err != nil {
		return err
	}

	// Once the relay has the message, the end of the connection does not matter.
	defer func() { _ = client.Close() }()

	err = client.Send(msg)
	if refused, ok := errors.AsType[*mail.SendError](err); ok && !refused.IsTemp() {
		// A relay that is away has not refused anything.
		switch refused.Reason {
		case mail.ErrSMTPMailFrom, mail.ErrSMTPRcptTo, mail.ErrSMTPData:
			return Permanent(err)
		}
	}

	return err
}

// dial returns a dialer for one message: the deadline of the attempt holds for the whole
// dialogue, or a relay that falls silent would hold it for ever.
func (m *Mail) dial(attempt context.Context) mail.DialContextFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var (
			conn net.Conn
			err  error
		)

		if m.implicit != nil {
			conn, err = (&tls.Dialer{Config: m.implicit}).DialContext(ctx, network, addr)
		} else {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		}

		if err != nil {
			return nil, err
		}

		if deadline, ok := attempt.Deadline(); ok {
			_ = conn.SetDeadline(deadline)
		}

		return conn, nil
	}
}
