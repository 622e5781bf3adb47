// Package part says what a capability of the program does where nobody asks for it by name: what it adds to the commit of events, what
// a deployment means for it, what it removes when streams are erased, and what it does in the background.
package part
