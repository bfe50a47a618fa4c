/** libguestfs for the tests: its appliance needs a kernel with modules, which a machine without one of its own takes from the lab. */
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { cloudKernel } from './kernel.ts';
import { run, succeeds } from './run.ts';

/** Makes libguestfs work here. @param program of its that is needed @returns why it cannot, or null */
export async function guestfsMissing(program = 'virt-customize'): Promise<string | null> {
  if (!(await succeeds([program, '--version']))) return `${program} is not installed`;
  if (hasOwnKernel()) return null;
  try {
    const { version, image } = await cloudKernel();
    const root = dirname(dirname(image));
    const modules = [
      join(root, 'lib', 'modules', version),
      join(root, 'usr', 'lib', 'modules', version),
    ].find(path => existsSync(path));
    if (!modules) return `the kernel ${version} has no modules`;
    // a package that was only unpacked has no list of what depends on what
    if (!existsSync(join(modules, 'modules.dep')))
      await run(['depmod', '-b', dirname(dirname(dirname(modules))), version]);
    process.env.SUPERMIN_KERNEL = image;
    process.env.SUPERMIN_MODULES = modules;
    return null;
  } catch (error) {
    return `no kernel for libguestfs: ${(error as Error).message.slice(0, 300)}`;
  }
}

function hasOwnKernel(): boolean {
  const names = (path: string) => (existsSync(path) ? readdirSync(path) : []);
  return names('/boot').some(
    name => name.startsWith('vmlinuz-') && names('/lib/modules').includes(name.slice('vmlinuz-'.length)),
  );
}
