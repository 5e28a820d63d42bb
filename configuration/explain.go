// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"strings"
)

var (
	// Messages of OpenSSH.
	keyChanged   = lazy(`Host key for (\S+) has changed and you have requested strict checking`)
	keyTaken     = lazy(`Host key (\S+) (SHA256:\S+) revoked by file`)
	keyOffending = lazy(`Offending \S+ key in (\S+):\d+`)
	keyUnknown   = lazy(`No (\S+) host key is known for (\S+) and you have requested strict checking`)
	permission   = lazy(`(\S+@\S+): Permission denied \(([^)]*)\)`)
	connect      = lazy(`connect to host (\S+) port (\d+): ([A-Za-z ]+)`)
	closed       = lazy(`remote host "(\S+)".*: kex_exchange_identification: (.*)`)
	banner       = lazy(`timed out during banner exchange\s+Connection (?:to|with) (\S+)`)
	unresolvable = lazy(`Could not resolve hostname (\S+): ([A-Za-z ]+)`)

	// A message of Ansible: ssh took only a part of the module, which therefore never ran. Where
	// ssh ends later, the same sentence has what ssh says instead of the number of the error.
	unsent = lazy(`Data could not be sent to remote host "(\S+)".*: \[Errno 32\] Broken pipe\s*$`)
)

// Every message about a host key contains one of these phrases.
const (
	theHostKey  = "the ssh host key of "
	notRecorded = "not the one recorded at the first contact"
	notVerified = "the ssh host key could not be verified"
	isThatOf    = "is that of node "
)

// Every message about a name without an address contains this phrase.
const unresolved = " cannot be resolved: "

// Every message about credentials begins with this phrase.
const accessDenied = "ssh access as "

// Every message about a jump host begins with one of these phrases; the host follows.
const (
	jumpKeyChanged  = "the ssh host key of the jump host "
	jumpDenied      = accessDenied + "a user of the jump host "
	jumpUnconnected = notConnected + "the jump host "
)

// AboutHostKey reports whether a message of ExplainFailure is about a host key
// that ssh did not accept.
func AboutHostKey(message string) bool {
	return AboutRecordedKey(message) || AboutJumpKey(message) || AboutTakenKey(message) ||
		strings.Contains(message, notVerified)
}

// AboutTakenKey reports whether a message of ExplainFailure is about a host that has the
// recorded key of another node.
func AboutTakenKey(message string) bool {
	return strings.HasPrefix(message, theHostKey) && strings.Contains(message, isThatOf)
}

// AboutRecordedKey reports whether a message of ExplainFailure is about a host that
// has another key than the recorded one.
func AboutRecordedKey(message string) bool { return strings.Contains(message, notRecorded) }

// AboutJumpKey reports whether a message of ExplainFailure is about the key of a jump
// host, which is recorded with no node.
func AboutJumpKey(message string) bool { return strings.Contains(message, jumpKeyChanged) }

// AboutAccess reports whether a message of ExplainFailure is about credentials
// that the host, or its jump host, did not accept.
func AboutAccess(message string) bool { return strings.Contains(message, accessDenied) }

// AboutJumpAccess reports whether a message of ExplainFailure is about credentials that
// a jump host did not accept.
func AboutJumpAccess(message string) bool { return strings.Contains(message, jumpDenied) }

// DeniedBy reports whether a message of ExplainFailure says that the host itself did not
// accept the credentials, and no host on the way to it.
func DeniedBy(h Host, message string) bool {
	_, after, found := strings.Cut(message, accessDenied)
	account, _, denied := strings.Cut(after, " was denied ")
	at := strings.LastIndexByte(account, '@')
	return found && denied && at >= 0 && !AboutJumpAccess(message) && strings.EqualFold(account[at+1:], h.Addr)
}

// AboutOwner reports whether a message of the bundled role agent is about the host of another manager.
func AboutOwner(message string) bool {
	return strings.Contains(message, "This host belongs to another manager: ")
}

// notConnected begins every message about a connection that was never made.
const notConnected = "no ssh connection to "

// NeverConnected reports whether a message of ExplainFailure is about a host that ssh did
// not get into: the task that failed has not begun there.
func NeverConnected(message string) bool {
	return strings.HasPrefix(message, notConnected) || AboutHostKey(message) || AboutAccess(message) ||
		strings.Contains(message, unresolved)
}

// ExplainFailure turns the message of a failed task on a host into one that an operator
// can act on. An error of ssh becomes one sentence with its remedy; any other message is
// returned trimmed. A host without a label is not a node, but only an address. Of the
// connection, only the jump host counts.
func ExplainFailure(message string, h Host) string {
	if text := explainJump(message, h); text != "" {
		return text
	}

	remedy := ""
	if h.Label != "" {
		remedy = "; if that is expected, trust the new key"
	}

	if m := keyTaken().FindStringSubmatch(message); m != nil {
		refused := ErrTaken(h.Name, m[2], h.Taken)
		return refused.Message + "; " + refused.Remedy
	}

	// The order matters: ssh reports a host key that it refuses in several lines,
	// and the general one is last.
	if m := keyChanged().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the ssh host key of %s is %s: another machine answers under its address, "+
			"or it was installed anew%s", m[1], notRecorded, remedy)
	}

	if m := keyUnknown().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s shows a %s host key, which is %s, nor certified by a CA of ssh.host_ca%s",
			m[2], m[1], notRecorded, remedy)
	}

	if strings.Contains(message, "Host key verification failed") {
		return notVerified + "; where a jump host is used, its key may have changed: a ping of the node shows it"
	}

	if m := permission().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(accessDenied+"%s was denied (%s): check %s, and that the public key is authorized "+
			"on the host", m[1], m[2], credentials(h))
	}

	if m := connect().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s, port %s: %s", m[1], m[2], lower(m[3]))
	}

	if m := closed().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s: it was closed before the login (%s); check that an sshd "+
			"listens at that port",
			m[1], strings.TrimSpace(m[2]))
	}

	if m := banner().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s: the host accepts connections, and its sshd does not answer", m[1])
	}

	if m := unsent().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s: it broke before the task was sent, and Ansible does not say why; "+
			"a ping of the node shows what ssh says", m[1])
	}

	if m := unresolvable().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the host name %s"+unresolved+"%s", m[1], lower(m[2]))
	}

	message = strings.TrimSpace(message)
	if strings.HasSuffix(message, "Missing sudo password") {
		message += ": allow sudo without a password (NOPASSWD) to the account; nobody can give one in a job"
	}
	return message
}

// explainJump explains an error of ssh about the jump host, or returns "". What ssh says
// of the host itself has another name.
func explainJump(message string, h Host) string {
	j, err := ParseJump(h.Connection.Jump)
	if h.Connection.Jump == "" || err != nil {
		return ""
	}

	if m := keyChanged().FindStringSubmatch(message); m != nil && j.is(m[1]) {
		file := ""
		if at := keyOffending().FindStringSubmatch(message); at != nil {
			file = " -f " + at[1]
		}

		// known_hosts has the port with the name, unless it is the usual one.
		return fmt.Sprintf("%s%s has changed: another machine answers under its address, or it was installed anew; "+
			"if that is expected, remove its old key as the account that clusterm runs as: ssh-keygen -R '%s'%s",
			jumpKeyChanged, j.Host, m[1], file)
	}

	if m := permission().FindStringSubmatch(message); m != nil {
		if at := strings.LastIndexByte(m[1], '@'); j.is(m[1][at+1:]) {
			return fmt.Sprintf("%s%s was denied (%s; user %s): check the user in the jump of the connection and its "+
				"key_file, and that the public key is authorized on the jump host", jumpDenied, j.Host, m[2], m[1][:at])
		}
	}

	if m := connect().FindStringSubmatch(message); m != nil && j.is(m[1]) {
		return fmt.Sprintf("%s%s, port %s: %s", jumpUnconnected, j.Host, m[2], lower(m[3]))
	}

	if m := unresolvable().FindStringSubmatch(message); m != nil && j.is(m[1]) {
		return fmt.Sprintf("the name of the jump host %s"+unresolved+"%s", j.Host, lower(m[2]))
	}

	// Ansible does not show the messages of the ssh to the jump host.
	if m := closed().FindStringSubmatch(message); m != nil {
		remedy := "check both"
		if h.Label != "" {
			remedy = "a ping of the node shows which of the two refuses, and why"
		}
		return fmt.Sprintf(notConnected+"%s by the jump host %s: it was closed before the login (%s); %s",
			m[1], j.Host, strings.TrimSpace(m[2]), remedy)
	}

	return ""
}

// is reports whether ssh means the jump host by a name, which may have a port.
func (j Jump) is(name string) bool {
	if host, _, ok := cutPort(name); ok {
		name = host
	}
	return strings.EqualFold(name, j.Host)
}

// credentials names the settings of the account and key for a host.
func credentials(h Host) string {
	if h.Label == "" {
		return "ssh.user and ssh.key_file of the configuration"
	}
	return "user and key_file of the node's connection"
}

func lower(message string) string { return strings.ToLower(strings.TrimSpace(message)) }
