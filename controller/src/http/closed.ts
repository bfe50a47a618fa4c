import type { ServerResponse } from 'node:http';

/** Calls this once when the answer has gone out or its reader has left; at once when that was before. */
export function whenClosed(response: ServerResponse, call: () => void): void {
  if (response.closed || response.destroyed || response.socket?.destroyed === true) call();
  else response.once('close', call);
}
