import { answer, api } from '../../../api/client.ts';

/** Runs one command in the guest. @returns its result @throws ApiError */
export async function runCommand(
  id: string,
  command: string,
  fargs: Record<string, unknown>,
): Promise<unknown> {
  const body = { emu_cmd: command, fargs };
  const results = await answer(
    api.POST('/api/domains/{id}/guest-command/', { params: { path: { id } }, body }),
  );
  return (results as Record<string, unknown>)[command];
}
