import type { Client, Json } from './client.ts';

/** The guest of a VM. */
export interface GuestOf {
  client: Client;
  vmId: string;
}

/**
 * Runs a command of a guest's agent.
 * @param timeout seconds, 1–600; 60 when absent
 * @throws CliError
 */
export async function guestCommand<T>(
  { client, vmId }: GuestOf,
  command: string,
  fargs: Json,
  timeout?: number,
): Promise<T> {
  const body = { emu_cmd: command, fargs, ...(timeout === undefined ? {} : { timeout }) };
  const answer = await client.post<Record<string, T>>(`/api/domains/${vmId}/guest-command/`, body);
  return answer[command] as T;
}
