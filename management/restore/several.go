// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
)

// A store that is restored on one of several instances begins a new life of the manager, with a higher epoch. Beside
// living ones of the former life it would be a second manager of the same hosts.

// answering is how long to wait for another instance to answer.
const answering = 2 * time.Second

// describedOthers returns the URL of the embedded etcd for other instances, and the URLs of those as the directory of
// its store knows them; both are empty for an etcd that no other instance reaches.
func describedOthers(dir string) (own string, others []string, err error) {
	m, err := etcd.ReadMember(dir)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, nil
	case err != nil:
		return "", nil, err
	}

	others = m.Others()
	for _, u := range m.InitialCluster {
		if u != m.PeerURL() {
			others = append(others, u)
		}
	}

	return m.PeerURL(), others, nil
}

// listedOthers returns the URLs of the other members of a store that has a quorum.
func listedOthers(ctx context.Context, client *etcd.Client, own string) (others []string, err error) {
	members, err := client.Members(ctx)

	for _, m := range members {
		if len(members) > 1 && !slices.Contains(m.PeerURLs, own) {
			others = append(others, m.PeerURLs...)
		}
	}

	return others, err
}

// checkLost refuses while the etcd of another instance listens at one of the URLs.
func checkLost(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()

	var (
		dials   sync.WaitGroup
		answers = make([]string, len(urls))
	)

	for i, text := range urls {
		dials.Go(func() {
			u, err := url.Parse(text)
			if err != nil {
				return
			}

			if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host); err == nil {
				answers[i] = u.Host
				c.Close()
			}
		})
	}

	dials.Wait()

	alive := slices.DeleteFunc(answers, func(at string) bool { return at == "" })
	if len(alive) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "another instance of the manager is alive: its etcd listens at %s",
		strings.Join(alive, ", ")).
		Do("go on with its records, which are newer, and let this host join anew: clusterctl instance invite; " +
			"to go back to the backup with all of them, stop clusterm on each host first")
}

// mayReplaceOne refuses to restore on one of several instances unless that is wanted.
func (o Options) mayReplaceOne(others []string) error {
	if o.Replace {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "this is one of several instances of the manager, with %s",
		strings.Join(hostsOf(others), ", ")).
		Do("start clusterm on enough of them, if their data is there; if the manager is lost as a whole, put the "+
			"backup in its place: clusterm restore --replace %s", o.File)
}

// hostsOf returns the hosts of URLs, each once.
func hostsOf(urls []string) (hosts []string) {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	slices.Sort(hosts)

	return slices.Compact(hosts)
}
