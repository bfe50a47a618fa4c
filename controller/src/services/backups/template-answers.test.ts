import { describe, expect, test } from '@jest/globals';
import { lacksTemplate, withTemplateOf } from './template-answers.ts';

const MISSING = {
  key: 'template_missing',
  text: 'The template tpl is not on this node; restore it first.',
};
const OTHER_VERSION = { key: 'template_incompatible', text: 'The template tpl has version 2.' };
const LUN = { key: 'lun_not_copied', text: 'A LUN.' };

test('only what hinders a restore is asked about elsewhere', () => {
  expect(lacksTemplate([LUN, { key: 'template_disk_unchecked', text: '' }])).toBe(false);
  for (const fault of [MISSING, OTHER_VERSION]) expect(lacksTemplate([LUN, fault])).toBe(true);
});

describe('what all nodes say of the template', () => {
  test('another has it: which', () => {
    const others = [
      { node: 'n2', warnings: [OTHER_VERSION] },
      { node: 'n3', warnings: [LUN] },
      { node: 'n4', warnings: undefined },
    ];
    expect(withTemplateOf([LUN, MISSING], others)).toEqual([
      LUN,
      { key: 'template_elsewhere', text: 'The template is on n3; restore the thin clone there.' },
    ]);
  });

  test('none has the right one: what is wrong with the one there is', () => {
    expect(withTemplateOf([MISSING, LUN], [{ node: 'n2', warnings: [OTHER_VERSION] }])).toEqual([
      LUN,
      OTHER_VERSION,
    ]);
  });

  test('none has it, and one could not be asked', () => {
    const others = [
      { node: 'n2', warnings: [MISSING] },
      { node: 'n3', warnings: undefined },
    ];
    expect(withTemplateOf([MISSING], others)).toEqual([
      {
        key: 'template_missing',
        text: 'The template tpl is on no node that has the data pool; restore it first. Not asked, since they are not reachable: n3.',
      },
    ]);
  });

  test('there is nobody else to ask', () => {
    expect(withTemplateOf([MISSING], [])).toEqual([MISSING]);
  });
});
