// Client of Seriatim: push jobs, and work on them over HTTP or as a program of `seriatim serve`.

export { Client, Problem, SeriatimError, Unreachable } from "./client.js";
export { bury, cancel, done, release, retry, snooze } from "./lane.js";
export { ProcessWorker } from "./process.js";
export { RemoteWorker } from "./remote.js";
