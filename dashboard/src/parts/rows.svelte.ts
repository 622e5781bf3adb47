// Which rows of a long list are drawn: those in sight and some around them. Lists up to 200 rows are drawn whole.

export class VirtualRows {
  private top = $state(0);
  private room = $state(600);

  constructor(
    private readonly count: () => number,
    private readonly height: number,
  ) {}

  get first(): number {
    if (this.count() <= 200) return 0;
    // An even number, so that what is drawn changes every other row only.
    return Math.max(0, Math.min(Math.floor(this.top / this.height / 2) * 2 - 20, this.count() - 1));
  }

  get last(): number {
    if (this.count() <= 200) return this.count();
    return Math.min(this.count(), this.first + Math.ceil(this.room / this.height) + 44);
  }

  /** Whether the beginning of the list is in sight. */
  get atTop(): boolean {
    return this.top < this.height;
  }

  /** Follows the scrolling of an element. */
  attach = (el: HTMLElement) => {
    const read = () => {
      this.top = el.scrollTop;
      this.room = el.clientHeight;
    };
    read();
    el.addEventListener('scroll', read, { passive: true });
    const resized = new ResizeObserver(read);
    resized.observe(el);
    return () => {
      el.removeEventListener('scroll', read);
      resized.disconnect();
    };
  };
}
