// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Others are the client URLs of the other members of a server, as it last knew them; none without others.
func Others(dir string) ([]string, error) {
	m, err := ServerOptions{Dir: dir}.member()
	if err != nil || m == nil {
		return nil, err
	}

	return m.Others(), nil
}

// Others are the client URLs of the other members, as far as they are known. Any of them may vote by now.
func (m Member) Others() []string { return slices.Concat(m.Endpoints, m.Learners) }

// AddrOf is the address in the URL of a member.
func AddrOf(memberURL string) netip.Addr {
	at, _ := netip.ParseAddrPort(strings.TrimPrefix(memberURL, "https://"))
	return at.Addr()
}

// NoneAnswers refuses as long as something listens where another member of the server in the directory does.
func NoneAnswers(ctx context.Context, dir string) error {
	m, err := ServerOptions{Dir: dir}.member()
	if err != nil || m == nil {
		return err
	}

	return m.noneAnswers(ctx)
}

// Answer is what a member of this or another cluster has under a key.
type Answer struct {
	Endpoint string
	Value    []byte // nil: nothing
}

// Ask reads a key at each of the URLs of members, with the certificate of the server in the directory, and returns what
// answers within two seconds. The value may be older than that of the cluster. A member that has not found a quorum
// since its start does not answer.
func Ask(ctx context.Context, dir, key string, urls []string) ([]Answer, error) {
	m, err := ServerOptions{Dir: dir}.member()
	if err != nil || m == nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	var (
		found = make([]*Answer, len(urls))
		tasks sync.WaitGroup
	)

	for i, endpoint := range urls {
		tasks.Go(func() {
			if value, err := m.read(ctx, endpoint, key); err == nil {
				found[i] = &Answer{endpoint, value}
			}
		})
	}

	tasks.Wait()

	var answers []Answer
	for _, a := range found {
		if a != nil {
			answers = append(answers, *a)
		}
	}

	return answers, nil
}

// read reads a key at one other member.
func (m Member) read(ctx context.Context, endpoint, key string) ([]byte, error) {
	secure, err := m.tlsConfig()
	if err != nil {
		return nil, err
	}

	config := clientv3.Config{Endpoints: []string{endpoint}, TLS: secure}
	setOptions(&config)

	c, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	defer c.Close()

	resp, err := c.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}

	return resp.Kvs[0].Value, nil
}

// WithCopy calls use with a copy of the records of a stopped server, which only this process reaches, and removes it.
func (o ServerOptions) WithCopy(ctx context.Context, use func(*Client) error) (err error) {
	own := ServerOptions{Dir: o.Dir + ".copy", NoSync: true, MustExist: true, Quota: o.Quota, Log: o.Log}
	if err := errors.Join(os.RemoveAll(own.Dir), os.Mkdir(own.Dir, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own.Dir)) }()

	if _, err := o.replay(ctx); err != nil {
		return err
	}
	if err := o.found("clusterm", "unix://"+own.socket("peer"), own.dataDir()); err != nil {
		return err
	}

	s, err := StartServer(ctx, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	client, err := s.Dial(ctx, Keys(DefaultPrefix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	return use(client)
}
