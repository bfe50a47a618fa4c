import { Client } from './client.ts';
import { loadSession } from './session.ts';

export interface GlobalOptions {
  json?: boolean;
}

/** Runs a command with a client that is closed afterwards. */
export async function withClient<T>(work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client(loadSession());
  try {
    return await work(client);
  } finally {
    client.close();
  }
}
