/** Tagging several machines at once, or taking a tag from them. */
import { FormGroup, Radio } from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, keyFor, list, type Tag } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';
import { Dialog } from './confirm.tsx';
import { SelectField, TextField } from './fields.tsx';
import { type Machines, useNames } from './names.ts';

type Change = 'add' | 'remove';

/** Stands for a tag that is made. */
const NEW = 'new';

export function TagDialog({ machines, close }: { machines: Machines; close: () => void }) {
  const ids = [...machines.keys()];
  const { texts } = useWords();
  const words = texts.tags;
  const namesOf = useNames();
  const client = useQueryClient();
  const [change, setChange] = useState<Change>('add');
  const [tag, setTag] = useState('');
  const [verbose_name, setName] = useState('');
  const tags = useQuery({
    queryKey: ['tags', 'all'],
    queryFn: () => list<Tag>(api.GET('/api/tags/', { params: { query: { limit: 1000 } } })),
  });
  const make = async () => {
    const { id } = await answer(
      api.POST('/api/tags/', { body: { verbose_name, idempotency_key: keyFor('/api/tags/', verbose_name) } }),
    );
    // it is there, whatever becomes of the rest
    await client.invalidateQueries({ queryKey: ['tags'] });
    setTag(id);
    return id;
  };
  const act = async () => {
    const id = tag === NEW ? await make() : tag;
    const options = {
      params: { path: { id } },
      body: { entities: ids.map(entity_uuid => ({ entity_uuid, entity_class: 'domain' })) },
    };
    await answer(
      change === 'add'
        ? api.POST('/api/tags/{id}/add-entities/', options)
        : api.POST('/api/tags/{id}/remove-entities/', options),
    );
    await client.invalidateQueries({ queryKey: ['tags'] });
    await client.invalidateQueries({ queryKey: ['domains'] });
  };
  return (
    <Dialog
      title={words.tagSelected(ids.length)}
      submit={words.submit[change]}
      isReady={tag === NEW ? verbose_name !== '' : tag !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <p>{namesOf(machines)}</p>
          <FormGroup role="radiogroup" isStack label={words.what} fieldId="tag-change">
            {(['add', 'remove'] as const).map(one => (
              <Radio
                key={one}
                id={`tag-${one}`}
                name="tag-change"
                label={words.submit[one]}
                isChecked={change === one}
                onChange={() => {
                  setChange(one);
                  // from a new one nothing can be taken
                  if (one === 'remove' && tag === NEW) setTag('');
                }}
              />
            ))}
          </FormGroup>
          <SelectField
            id="tag-which"
            label={words.tag}
            isRequired
            options={[
              ['', texts.none],
              ...(change === 'add' ? [[NEW, words.make] as const] : []),
              ...(tags.data?.results ?? []).map(one => [one.id, one.verbose_name] as const),
            ]}
            value={tag}
            change={setTag}
          />
          {tag === NEW && (
            <TextField
              id="tag-new"
              label={texts.common.name}
              isRequired
              maxLength={255}
              value={verbose_name}
              error={fault('verbose_name')}
              change={setName}
            />
          )}
        </>
      )}
    </Dialog>
  );
}
