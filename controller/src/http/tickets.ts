/**
 * Addresses that stand for a login: clients of the API family ask for the address of a download and read it with a plain GET, as browsers do.
 * A ticket is a random text that is known for a minute, in memory alone. It gives no right: it names the token that it was given for, which
 * is asked again.
 */
import { randomBytes } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';

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
  readonly #tickets = new ExpiringMap<Ticket>({ lifeMs: LIFE_MS, maxEntries: MAX_TICKETS });

  issue(ticket: Ticket): string {
    const text = randomBytes(TICKET_BYTES).toString('base64url');
    this.#tickets.set(text, ticket);
    return text;
  }

  /** It counts on until its minute is over: a download that broke off goes on with Range. @throws not_found */
  find(text: string): Ticket {
    const found = this.#tickets.get(text);
    if (found === undefined) throw new VirtkeepError('not_found', { path: 'this address by now' });
    return found;
  }
}
