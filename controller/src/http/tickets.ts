/**
 * Addresses that stand for a login: clients of the API family ask for the address of a download and read it with a plain GET, as browsers do.
 * A ticket is a random text that is known for a minute, in memory alone. It gives no right: it names the token that it was given for, which
 * is asked again.
 */
import { randomBytes } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';

export interface Ticket {
  /** Of what is downloaded. */
  id: string;
  /** The header `Authorization` of who asked for it. */
  authorization: string;
}

const LIFE_MS = 60_000;
const MAX_TICKETS = 1000;
const TICKET_BYTES = 32;

export class Tickets {
  /** The oldest first. */
  readonly #tickets = new Map<string, Ticket & { at: number }>();

  issue(ticket: Ticket): string {
    const text = randomBytes(TICKET_BYTES).toString('base64url');
    const [oldest] = this.#tickets.keys();
    if (this.#tickets.size >= MAX_TICKETS) this.#tickets.delete(oldest!);
    this.#tickets.set(text, { ...ticket, at: Date.now() });
    return text;
  }

  /** It counts on until its minute is over: a download that broke off goes on with Range. @throws not_found */
  find(text: string): Ticket {
    const found = this.#tickets.get(text);
    if (found && Date.now() - found.at < LIFE_MS) return found;
    this.#tickets.delete(text);
    throw new VirtkeepError('not_found', { path: 'this address by now' });
  }
}
