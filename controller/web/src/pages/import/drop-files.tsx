import { Button, Progress, ProgressSize } from '@patternfly/react-core';
import { type DragEvent, useRef, useState } from 'react';
import { Link } from 'react-router';
import { forget, goOn, stop, type Upload, upload, useUploads } from '../../live/uploads.ts';
import { Failure } from '../../parts/shown.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useWords } from '../../texts/index.tsx';

/** Where files are dropped or chosen, and how far each is. @param pool empty: none is chosen yet */
export function DropFiles({ pool }: { pool: string }) {
  const { texts } = useWords();
  const words = texts.import;
  const uploads = useUploads();
  const input = useRef<HTMLInputElement>(null);
  const [isOver, setOver] = useState(false);
  const isReady = pool !== '';
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (isReady) upload(event.dataTransfer.files, pool);
  };
  return (
    <>
      <section
        aria-label={words.upload}
        className={`vk-drop ${isOver && isReady ? 'vk-drop-over' : ''}`}
        onDragOver={event => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <p>{isReady ? words.drop : words.poolFirst}</p>
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label={words.choose}
          onChange={({ target }) => {
            upload(target.files ?? [], pool);
            target.value = '';
          }}
        />
        <Button variant="secondary" isDisabled={!isReady} onClick={() => input.current?.click()}>
          {words.choose}
        </Button>
      </section>
      <ul className="vk-list vk-block" aria-label={words.uploads}>
        {uploads.map(one => (
          <li key={one.key}>
            <OneUpload upload={one} />
          </li>
        ))}
      </ul>
    </>
  );
}

function OneUpload({ upload: one }: { upload: Upload }) {
  const { texts, format } = useWords();
  const words = texts.import;
  const { attempt } = useToasts();
  const { key, name, size, offset, rate, status, error, file } = one;
  const said = [
    `${format.size(offset)} / ${format.size(size)}`,
    words.statuses[status],
    status === 'sending' && rate > 0 ? texts.tasks.rate(format.size(rate)) : '',
  ];
  return (
    <>
      <div className="vk-name">{name}</div>
      <Progress
        aria-label={texts.tasks.progressOf(name)}
        size={ProgressSize.sm}
        value={size === 0 ? 100 : Math.floor((offset / size) * 100)}
        title={said.filter(Boolean).join(' · ')}
        {...(status === 'failed' ? { variant: 'danger' as const } : {})}
        {...(status === 'done' ? { variant: 'success' as const } : {})}
      />
      {error !== undefined && <Failure error={error} />}
      <span className="vk-row">
        {(status === 'sending' || status === 'waiting') && (
          <Button size="sm" variant="secondary" aria-label={words.stopOf(name)} onClick={() => stop(key)}>
            {words.stop}
          </Button>
        )}
        {(status === 'stopped' || status === 'failed') && (
          <Button size="sm" variant="secondary" aria-label={words.goOnOf(name)} onClick={() => goOn(key)}>
            {words.goOn}
          </Button>
        )}
        <Button
          size="sm"
          variant="link"
          aria-label={words.forgetOf(name)}
          onClick={() => attempt(() => forget(key))}
        >
          {words.forget}
        </Button>
        {file && (
          <Link to={file.type === 'tar' ? `/restore?file=${file.id}` : `/import?file=${file.id}`}>
            {words.goTo}
          </Link>
        )}
      </span>
    </>
  );
}
