// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	keyChanged   = regexp.MustCompile(`Host key for (\S+) has changed and you have requested strict checking`)
	keyUnknown   = regexp.MustCompile(`No (\S+) host key is known for (\S+) and you have requested strict checking`)
	permission   = regexp.MustCompile(`(\S+@\S+): Permission denied \(([^)]*)\)`)
	connect      = regexp.MustCompile(`connect to host (\S+) port (\d+): ([A-Za-z ]+)`)
	unresolvable = regexp.MustCompile(`Could not resolve hostname (\S+): ([A-Za-z ]+)`)
)

// ExplainFailure turns the message of a failed task into one that an operator
// can act on. Trouble that ssh reports at length becomes one sentence with its
// remedy; anything else is returned as it is, trimmed.
func ExplainFailure(message string) string {
	if m := keyChanged.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the ssh host key of %s is not the one recorded at the first contact: another machine answers under its address, or it was installed anew; if that is expected, run: clusterctl nodes set %s --forget-host-key", m[1], m[1])
	}
	if m := keyUnknown.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s shows a %s host key, which is not the one recorded at the first contact; if that is expected, run: clusterctl nodes set %s --forget-host-key", m[2], m[1], m[2])
	}
	if strings.Contains(message, "Host key verification failed") {
		return "the ssh host key could not be verified; where a jump host is used, its key must be in the known_hosts file of the account clusterm runs as"
	}
	if m := permission.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("ssh access as %s was denied (%s): check user and key_file of the node's connection, and that the public key is authorized on the host", m[1], m[2])
	}
	if m := connect.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("no ssh connection to %s, port %s: %s", m[1], m[2], strings.ToLower(strings.TrimSpace(m[3])))
	}
	if m := unresolvable.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the host name %s cannot be resolved: %s", m[1], strings.ToLower(strings.TrimSpace(m[2])))
	}
	return strings.TrimSpace(message)
}
