/** `make lab-down`: removes everything that `make lab-up` made. */
import { labDown, labOptions } from './lab.ts';

const say = (text: string) => process.stdout.write(`lab: ${text}\n`);
const { dir } = labOptions(process.env, say);
say((await labDown(dir)) ? 'down' : 'there was none');
