/** Programs of other packages, which a node has only when its administrator has installed them. */
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';

export interface Tool {
  program: string;
  /** Of Debian. */
  package: string;
}

/** Where programs are looked for. */
export const PATH = process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin';

export const toolMissing = ({ program, package: name }: Tool): VirtkeepError =>
  new VirtkeepError('tool_missing', { program, package: name });

/** @param path directories in which it is looked for. @throws VirtkeepError tool_missing */
export async function requireTool(tool: Tool, path = PATH): Promise<void> {
  for (const directory of path.split(delimiter)) {
    const isThere = await access(join(directory, tool.program), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return;
  }
  throw toolMissing(tool);
}
