package rt

// PPM is a bandwidth in parts per million of one core.
type PPM int64

const (
	// OneCore is the whole bandwidth of a core.
	OneCore PPM = 1_000_000
	// Unlimited is where sums of bandwidths saturate. No core offers it, so what needs it is refused.
	Unlimited PPM = 1 << 50
)

// ratio is n/d in PPM, rounded up. It is Unlimited where n/d has no meaning or is beyond every core.
func ratio(n, d int64) PPM {
	if n <= 0 {
		return 0
	}
	if d <= 0 || n > int64(Unlimited)/int64(OneCore) {
		return Unlimited
	}
	return PPM(ceilDiv(n*int64(OneCore), d))
}

// sum adds two bandwidths that are not negative.
func sum(a, b PPM) PPM {
	if a >= Unlimited-b {
		return Unlimited
	}
	return a + b
}

// ceilDiv is n/d rounded up, for n >= 0 and d > 0.
func ceilDiv(n, d int64) int64 {
	q := n / d
	if n%d != 0 {
		q++
	}
	return q
}
