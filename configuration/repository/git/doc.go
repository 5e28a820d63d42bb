// SPDX-License-Identifier: Apache-2.0

// Package git fetches playbooks from a git repository into a bare mirror, within
// bounds of size, time and number of files. It has no working tree, and runs no hooks,
// filters or other programs. Everything that it fetches is untrusted: a tree with a path
// that may harm is refused as a whole, by the name of the file.
//
// Transports, packs, references and histories are those of go-git. Some of it does not
// serve for what is not trusted: its Remote stores a pack before anything is measured, its
// walk of a tree leaves out a folder that is missing, and its ssh has no end for a login.
//
// A mirror is a cache. One that is damaged, e.g. by a crash, is fetched anew; nothing
// depends on the commits in it, because the trees in use are kept by repository.Store.
package git
